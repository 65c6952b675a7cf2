"""Results reported over HTTP fit the type that their job declares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from holdfast import Holdfast, State
from tests.support.api import served
from tests.support.leasing import end, take
from tests.support.running import WAIT_SECONDS_MAX


@dataclass
class Size:
    width: int
    height: int


class Page(BaseModel):
    number: int
    text: str


def make_app(url: str) -> Holdfast:
    hf = Holdfast(url)

    @hf.job(executor="remote")
    def measure() -> Size:
        raise NotImplementedError

    @hf.job(executor="remote")
    def measure_all() -> list[Size]:
        raise NotImplementedError

    @hf.job(executor="remote")
    def scan() -> list[Page]:
        raise NotImplementedError

    @hf.job(executor="remote", encrypted=True)
    def count() -> int:
        raise NotImplementedError

    @hf.job(executor="remote")
    def anything() -> Any:
        raise NotImplementedError

    @hf.job(executor="remote")
    def nothing() -> None:
        raise NotImplementedError

    return hf


PAGE = {"number": 1, "text": "Once"}
MISFITS = [
    ("measure", {"width": "4", "height": 3}, "/result/width"),
    ("measure", {"width": 4}, "/result"),
    ("measure", None, "/result"),
    ("measure_all", [{"width": 4, "height": 3}, {"width": 4, "height": 3.5}], "/result/1/height"),
    ("measure_all", {"width": 4, "height": 3}, "/result"),
    ("scan", [PAGE, {"number": "one", "text": "upon"}], "/result/1/number"),
    ("scan", [{"number": 1}], "/result/0/text"),
    ("count", "12", "/result"),
]


@pytest.mark.parametrize(("name", "result", "pointer"), MISFITS)
async def test_a_result_of_another_type_is_rejected_and_changes_nothing(
    store_url: str, name: str, result: Any, pointer: str
) -> None:
    hf = make_app(store_url)
    async with served(hf) as client:
        job = await hf._functions[name].enqueue()
        (lease,) = await take(client)
        before = await hf.get(job.id)
        answer = await end(client, lease, status="succeeded", result=result)
        assert (answer.status_code, answer.json()["code"]) == (422, "bad-result")
        (error,) = answer.json()["errors"]
        assert error["pointer"] == pointer
        assert error["detail"].startswith(f"{name}: the result")
        assert await hf.get(job.id) == before
        # The lease is still good for another outcome.
        other = await end(client, lease, status="failed", code="REJECTED", permanent=True)
        assert other.json()["state"] == "failed"


@pytest.mark.parametrize(
    ("name", "result", "loaded"),
    [
        ("measure", {"width": 4, "height": 3}, Size(4, 3)),
        ("measure_all", [], []),
        ("scan", [PAGE], [Page(number=1, text="Once")]),
        ("count", 12, 12),
        ("anything", [1, "2"], [1, "2"]),
        ("nothing", {"extra": 1}, {"extra": 1}),
    ],
)
async def test_a_result_that_fits_is_recorded_once(
    local_url: str, name: str, result: Any, loaded: Any
) -> None:
    hf = make_app(local_url)
    async with served(hf) as client:
        job = await hf._functions[name].enqueue()
        (lease,) = await take(client)
        for _ in range(2):
            answer = await end(client, lease, status="succeeded", result=result)
            assert answer.json()["state"] == State.SUCCEEDED
        assert await hf.result(job, WAIT_SECONDS_MAX) == loaded
