"""One caller can't take all connections of a server with requests that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import httpx

from holdfast import Holdfast
from holdfast.api import make_api
from holdfast.api.callers import Caller
from holdfast.api.limits import WAITING_PER_KEY_MAX
from holdfast.api.server import make_server
from holdfast.api.waiting import Waiting
from holdfast.domain.keys import NewKey
from tests.support.api import client_of
from tests.support.events import streaming
from tests.support.leasing import job_of, make_app
from tests.support.processes import wait_until


@contextmanager
def waiting_of(waiting: Waiting, caller: Caller, count: int) -> Iterator[None]:
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(waiting.counted(caller))
        yield


def bearing(key: NewKey) -> dict[str, str]:
    return {"authorization": f"Bearer {key.key}"}


async def key_of(hf: Holdfast, name: str) -> tuple[NewKey, Caller]:
    made = await hf.keys.create(name, scopes=["read", "work"])
    key = await hf.keys.get(made.id)
    return made, Caller(hf, name, None, frozenset(), key=key)


def check_refused(response: httpx.Response) -> None:
    assert (response.status_code, response.json()["code"]) == (429, "too-many-requests")
    assert int(response.headers["retry-after"]) >= 1


async def test_beyond_the_cap_waits_and_streams_are_refused_and_nothing_else(
    local_url: str,
) -> None:
    hf = make_app(local_url)
    job = await job_of(hf).options(delay_seconds=600).enqueue(1)
    busy, caller = await key_of(hf, "busy")
    other, _ = await key_of(hf, "other")
    api = make_api(hf, upkeep=False)
    result, events = f"/v1/jobs/{job.id}/result", f"/v1/jobs/{job.id}/events"
    async with client_of(make_server(api)) as client:
        client.headers.update(bearing(busy))
        with waiting_of(api.state.service.waiting, caller, WAITING_PER_KEY_MAX):
            check_refused(await client.get(f"{result}?wait_seconds=50"))
            check_refused(await client.get(events))
            check_refused(await client.post("/v1/leases", json={"wait_seconds": 50}))
            assert (await client.get(result)).status_code == 202
            assert (await client.post("/v1/leases", json={})).status_code == 204
            client.headers.update(bearing(other))
            async with streaming(client, events):
                pass
        client.headers.update(bearing(busy))
        async with streaming(client, events):
            pass


async def test_each_wait_and_each_stream_counts_until_it_ends(local_url: str) -> None:
    hf = make_app(local_url)
    job = await job_of(hf).options(delay_seconds=600).enqueue(1)
    api = make_api(hf, upkeep=False)
    waiting: Waiting = api.state.service.waiting
    me = Caller(hf, "local", None, frozenset(), address="127.0.0.1")
    result, events = f"/v1/jobs/{job.id}/result", f"/v1/jobs/{job.id}/events"
    async with client_of(make_server(api)) as client:
        with waiting_of(waiting, me, WAITING_PER_KEY_MAX - 3):
            asking = [
                asyncio.create_task(client.get(f"{result}?wait_seconds=50")),
                asyncio.create_task(client.post("/v1/leases", json={"wait_seconds": 50})),
            ]
            async with streaming(client, events) as stream:
                await stream.next()
                await wait_until(lambda: waiting.count(me) == WAITING_PER_KEY_MAX, "all three")
                check_refused(await client.get(events))
            for each in asking:
                each.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
            await wait_until(lambda: waiting.count(me) == WAITING_PER_KEY_MAX - 3, "their ends")
        assert waiting.count(me) == 0
