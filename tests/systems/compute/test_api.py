"""What the API refuses, and how it says so."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, MutableMapping
from typing import Any
from uuid import UUID, uuid4

import pytest

from holdfast_systems.compute.api import make_api
from holdfast_systems.compute.limits import BODY_BYTES_MAX, INPUTS_BYTES_MAX
from tests.systems.compute.stage import INPUTS, Stage, request, staged

pytestmark = pytest.mark.heavy


@pytest.fixture
async def stage(local_url: str) -> AsyncIterator[Stage]:
    async with staged(local_url, work=False) as stage:
        yield stage


REFUSED = [
    (b"{", 400, "NO_JSON"),
    (b"\xff", 400, "NO_JSON"),
    (b'{"inputs":{"a":' + b"[" * 100_000, 400, "NO_JSON"),
    (b" " * (BODY_BYTES_MAX + 1), 413, "TOO_LARGE"),
    (request(surprise=1), 422, "REQUEST_INVALID"),
    (request(priority=-1), 422, "REQUEST_INVALID"),
    (request(app_id="a\u0000b"), 422, "REQUEST_INVALID"),
    (request(definition="nothing"), 404, "CONTRACT_UNKNOWN"),
    (request(definition="../../etc"), 404, "CONTRACT_UNKNOWN"),
    (request(version="1.0"), 404, "CONTRACT_UNKNOWN"),
    (request(inputs={}), 422, "INPUTS_INVALID"),
    (request(inputs=INPUTS | {"surprise": 1}), 422, "INPUTS_INVALID"),
    (request(inputs=INPUTS | {"north": 2**60}), 422, "INPUTS_INVALID"),
    (request(inputs=INPUTS | {"north\u0000": 1}), 422, "INPUTS_INVALID"),
]


async def test_a_bad_request_is_refused_with_a_reason(stage: Stage) -> None:
    for body, status, code in REFUSED:
        answered, answer = await stage.post(body)
        assert (answered, answer["detail"]["code"]) == (status, code), code
    status, _ = await stage.post(request(), None, {"x-tenant-id": "no UUID"})
    assert status == 422
    assert not (await stage.hf.jobs.list()).jobs


async def test_a_refusal_says_where_the_inputs_break_the_contract(stage: Stage) -> None:
    inputs = INPUTS | {"house": {"storeys": "two"}}
    _, answer = await stage.post(request(inputs=inputs))
    assert answer["detail"]["errors"] == ['/house/storeys: "two" is not of type "integer"']


async def test_a_client_that_goes_away_is_no_error_of_the_api(stage: Stage) -> None:
    async def gone() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def ignore(_message: MutableMapping[str, Any]) -> None:
        return

    scope = {"type": "http", "method": "POST", "path": "/jobs/run", "headers": []}
    await make_api(stage.compute)({**scope, "query_string": b""}, gone, ignore)


async def test_the_appserver_does_not_read_without_end(stage: Stage) -> None:
    path = "/appserver/gh/house-fit:1.0.0/solve"
    for body, status in ((bytes(INPUTS_BYTES_MAX + 1), 413), (b"[]", 400), (b'{"\xff":1}', 400)):
        async with stage.http.post(path, data=io.BytesIO(body)) as response:
            assert response.status == status


async def test_what_is_not_there_is_404(stage: Stage) -> None:
    for path in ("status", "result", "artifact"):
        status, _ = await stage.get(f"/jobs/{path}/{uuid4()}")
        assert status == 404


async def test_a_correlation_id_that_can_not_be_logged_is_replaced(stage: Stage) -> None:
    for given in ("", "a b", "x" * 101, "caf\u00e9"):
        headers = {"x-correlation-id": given}
        async with stage.http.post("/jobs/run", json=request(), headers=headers) as response:
            UUID(response.headers["x-correlation-id"])


async def test_a_request_waits_as_queued_with_its_own_priority(stage: Stage) -> None:
    job_id = await stage.run(request(priority=7))
    told = await stage.status(job_id)
    assert (told["status"], told["attempts"], told["last_error"]) == ("queued", 0, None)
    assert (await stage.hf.get(job_id)).priority == 7
    status, answer = await stage.get(f"/jobs/result/{job_id}")
    assert (status, answer["detail"]["code"]) == (409, "NO_RESULT")


async def test_a_canceled_job_says_so_and_answers_for_nothing(stage: Stage) -> None:
    job_id = await stage.run()
    await stage.hf.jobs.cancel(job_id)
    assert (await stage.status(job_id))["status"] == "canceled"
    assert await stage.run() != job_id
