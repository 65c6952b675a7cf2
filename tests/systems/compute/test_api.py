"""What the routes refuse, and how they say so."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from holdfast_systems.compute.limits import BODY_BYTES_MAX, INPUTS_BYTES_MAX
from tests.systems.compute.stage import INPUTS, OTHER_TENANT, TENANT, Stage, request, staged

pytestmark = pytest.mark.heavy


@pytest.fixture
async def stage(local_url: str) -> AsyncIterator[Stage]:
    async with staged(local_url, work=False) as stage:
        yield stage


REFUSED = [
    (b"{", 400, "bad-json", None),
    (b"\xff", 400, "bad-json", None),
    (b'{"inputs":{"a":' + b"[" * 100_000, 400, "bad-json", None),
    (b" " * (BODY_BYTES_MAX + 1), 413, "too-large", None),
    (request(surprise=1), 400, "bad-request", None),
    (request(priority=-1), 400, "bad-request", None),
    (request(app_id="a\u0001b"), 400, "bad-request", None),
    (request(inputs=INPUTS | {"north\u0000": 1}), 400, "bad-json", None),
    (request(definition="nothing"), 404, "not-found", "CONTRACT_UNKNOWN"),
    (request(definition="../../etc"), 404, "not-found", "CONTRACT_UNKNOWN"),
    (request(version="1.0"), 404, "not-found", "CONTRACT_UNKNOWN"),
    (request(inputs={}), 422, "bad-arguments", "INPUTS_INVALID"),
    (request(inputs=INPUTS | {"surprise": 1}), 422, "bad-arguments", "INPUTS_INVALID"),
    (request(inputs=INPUTS | {"north": 2**60}), 422, "bad-arguments", "INPUTS_INVALID"),
]


async def test_a_bad_request_is_refused_with_a_reason(stage: Stage) -> None:
    for body, status, code, reason in REFUSED:
        answered, answer = await stage.post(body)
        assert (answered, answer["code"], answer.get("reason")) == (status, code, reason), answer
    assert not (await stage.hf.jobs.list()).jobs


async def test_a_refusal_has_a_pointer_for_every_field(stage: Stage) -> None:
    inputs = {"house": {"storeys": "two", "a/b": 1}, "north~": 1}
    status, answer = await stage.post(request(inputs=inputs))
    assert (status, answer["reason"]) == (422, "INPUTS_INVALID")
    assert {each["pointer"]: each["detail"] for each in answer["errors"]} == {
        "/inputs/plot": "this field is required",
        "/inputs/north~0": "the contract has no such field",
        "/inputs/house/a~1b": "the contract has no such field",
        "/inputs/house/storeys": '"two" is not of type "integer"',
    }


async def test_an_envelope_that_is_wrong_has_a_pointer_too(stage: Stage) -> None:
    for changes, pointer in (({"priority": "high"}, "/priority"), ({"surprise": 1}, "/surprise")):
        status, answer = await stage.post(request(**changes))
        assert (status, [each["pointer"] for each in answer["errors"]]) == (400, [pointer])


async def test_the_appserver_says_where_its_inputs_are_wrong(stage: Stage) -> None:
    path = "/appserver/gh/house-fit:1.0.0/solve"
    async with stage.http.post(path, json=INPUTS | {"north": "up"}) as response:
        assert response.status == 422
        (place,) = (await response.json())["errors"]
    assert place == {"pointer": "/north", "detail": '"up" is not of type "number"'}


async def test_the_routes_need_a_key_and_its_scope(stage: Stage) -> None:
    reader = (await stage.hf.keys.create("reader", scopes=["read"])).key
    status, answer = await stage.post(request(), headers={"authorization": f"Bearer {reader}"})
    assert (status, answer["code"]) == (403, "not-allowed")
    async with stage.http.get(f"/jobs/status/{uuid4()}") as response:
        assert response.status == 401


async def test_no_header_makes_a_caller_another_tenant(stage: Stage) -> None:
    job_id = await stage.run()
    headers = stage.headers(OTHER_TENANT) | {"x-tenant-id": str(TENANT)}
    async with stage.http.get(f"/jobs/status/{job_id}", headers=headers) as response:
        assert response.status == 404


async def test_the_appserver_does_not_read_without_end(stage: Stage) -> None:
    path = "/appserver/gh/house-fit:1.0.0/solve"
    for body, status in ((bytes(INPUTS_BYTES_MAX + 1), 413), (b"[]", 400), (b'{"\xff":1}', 400)):
        async with stage.http.post(path, data=io.BytesIO(body)) as response:
            assert response.status == status


async def test_what_is_not_there_is_404(stage: Stage) -> None:
    for path in ("status", "result", "artifact"):
        status, _ = await stage.get(f"/jobs/{path}/{uuid4()}")
        assert status == 404


async def test_a_request_waits_as_queued_with_its_own_priority(stage: Stage) -> None:
    job_id = await stage.run(request(priority=7))
    told = await stage.status(job_id)
    assert (told["status"], told["attempts"], told["last_error"]) == ("queued", 0, None)
    assert (await stage.hf.get(job_id)).priority == 7
    status, answer = await stage.get(f"/jobs/result/{job_id}")
    assert (status, answer["code"], answer["reason"]) == (409, "wrong-state", "NO_RESULT")


async def test_a_canceled_job_says_so_and_answers_for_nothing(stage: Stage) -> None:
    job_id = await stage.run()
    await stage.hf.jobs.cancel(job_id)
    assert (await stage.status(job_id))["status"] == "canceled"
    assert await stage.run() != job_id
