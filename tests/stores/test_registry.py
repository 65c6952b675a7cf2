"""A store of another package is found by its entry point, and needs the core only."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import ConfigurationError, Holdfast, NotInThisStore, State
from tests.support.api import served

PACKAGE = """
from holdfast.store_api import Receipt, Seam, Settings

class TinyStore:
    def __init__(self, url: str) -> None:
        self._url = url
        self._jobs = {}

    async def open(self): ...

    async def close(self): ...

    def abandon(self): ...

    async def enqueue(self, jobs):
        self._jobs |= {job.id: job for job in jobs}
        return [Receipt(job.id, True) for job in jobs]

    async def get(self, job_id):
        job = self._jobs.get(job_id)
        return job and job.enqueued(job.id, Seam().now())


def make_store(url: str, seam: Seam, settings: Settings) -> TinyStore:
    return TinyStore(url)
"""


@pytest.fixture
def source() -> str:
    return PACKAGE


@pytest.fixture
def tiny_package(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "tiny_store.py").write_text(source)
    installed = tmp_path / "tiny_store-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-store\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[holdfast.stores]\ntiny = tiny_store:make_store\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("tiny_store", None)


@pytest.mark.usefixtures("tiny_package")
async def test_a_store_of_another_package_is_found_by_its_entry_point() -> None:
    async with Holdfast("tiny://here") as hf:

        @hf.job
        async def resize() -> None: ...

        job = await resize.enqueue()
        assert (await hf.jobs.get(job.id)).state is State.QUEUED
        with pytest.raises(NotInThisStore, match=r"this store \(TinyStore\) can't pause"):
            await hf.queues.pause("default")


@pytest.mark.usefixtures("tiny_package")
async def test_over_http_a_store_says_what_it_can_not_do() -> None:
    hf = Holdfast("tiny://here")

    @hf.job
    async def resize() -> None: ...

    async with served(hf, upkeep=False) as client:
        made = await client.post("/v1/jobs", json={"name": "resize"})
        assert made.status_code == 201
        assert (await client.get(made.headers["location"])).status_code == 200
        requests: list[tuple[str, str, object]] = [
            ("POST", "/v1/queues/default/pause", {}),
            ("POST", "/v1/leases", {"names": ["resize"]}),
            ("POST", "/v1/leases/renew", {"leases": [{"lease_id": "unknown"}]}),
            ("POST", "/v1/bulk", {"action": "cancel", "filter": {"states": ["queued"]}}),
            ("GET", "/v1/keys", None),
            ("GET", "/v1/audit", None),
        ]
        for method, path, body in requests:
            headers = {"Idempotency-Key": "once"} if path == "/v1/bulk" else {}
            refused = await client.request(method, path, json=body, headers=headers)
            assert (refused.status_code, path) == (501, path)
            assert "this store (TinyStore) can't" in refused.json()["detail"]


@pytest.mark.usefixtures("tiny_package")
@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("import no_such_driver", "ModuleNotFoundError: No module named 'no_such_driver'"),
        ("", "AttributeError: module 'tiny_store' has no attribute 'make_store'"),
        ("raise OSError('no license')", "OSError: no license"),
        ("make_store = 5", "TypeError: it is of type int, not a function"),
    ],
    ids=["its import fails", "no such name", "it raises", "not a function"],
)
def test_a_store_that_can_not_be_loaded_is_named_with_its_package_and_the_cause(
    cause: str,
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Holdfast("tiny://here")
    assert str(caught.value) == (
        "the store for tiny:// can't be loaded: the entry point tiny_store:make_store of"
        f" tiny-store failed with {cause}; fix, upgrade or uninstall that package"
    )
    assert caught.value.__cause__ is not None


async def test_a_scheme_that_nobody_registered_is_told_with_those_that_are_there() -> None:
    with pytest.raises(ConfigurationError, match=r"no store for tiny://.*sqlite://, postgresql://"):
        Holdfast("tiny://here")
