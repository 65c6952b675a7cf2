"""Event streams over a real server."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from holdfast import Context, Holdfast, Permanent, Retry
from holdfast.api import make_api
from holdfast.api.limits import KEY_KEPT_SECONDS
from holdfast.api.server import listen, make_server
from holdfast.domain.limits import PROGRESS_BYTES_MAX
from holdfast.runtime.seam import Seam
from tests.support.api import served
from tests.support.events import streaming
from tests.support.processes import wait_until
from tests.support.running import QUICK, WAIT_SECONDS_MAX, signal, working
from tests.support.seams import HandSeam
from tests.support.services import missing

LATER_SECONDS = 600.0


class Steps:
    """A job that takes one step at a time, each when the test says so."""

    def __init__(self, url: str, seam: Seam | None = None) -> None:
        self.hf = Holdfast(url, seam=seam, **QUICK)
        self.says: asyncio.Queue[Any] = asyncio.Queue()

        @self.hf.job(retry=Retry(max_attempts=2))
        async def walk(ctx: Context) -> str:
            while (said := await self.says.get()) != "done":
                if isinstance(said, Exception):
                    raise said
                await ctx.progress(said)
            return "arrived"

        self.job = walk

    async def enqueue(self, **options: Any) -> str:
        return str((await self.job.options(**options).enqueue()).id)


@pytest.fixture
def steps(store_url: str) -> Steps:
    return Steps(store_url)


def events_of(*ids: str) -> str:
    return f"/v1/jobs/events?{'&'.join(f'ids={each}' for each in ids)}"


async def test_a_stream_shows_each_state_the_progress_and_the_end(steps: Steps) -> None:
    job_id = await steps.enqueue()
    async with served(steps.hf) as client, streaming(client, f"/v1/jobs/{job_id}/events") as stream:
        assert stream.response.headers["content-type"].startswith("text/event-stream")
        assert stream.response.headers["cache-control"] == "no-store"
        assert stream.response.headers["x-accel-buffering"] == "no"
        first = await stream.next()
        assert (first.event, first.data["state"]) == ("state", "queued")
        async with working(steps.hf):
            running = await stream.next()
            assert (running.event, running.data["state"]) == ("state", "running")
            assert running.data["attempts"] == 1
            await steps.says.put({"done": 7})
            progress = await stream.next()
            assert progress[::2] == ("progress", {"job_id": job_id, "progress": {"done": 7}})
            await steps.says.put("done")
            state, end = await stream.rest()
    assert (state.event, state.data["state"]) == ("state", "succeeded")
    assert state.data["progress"] == {"done": 7}
    assert (end.event, end.data) == ("end", {"job_ids": [job_id]})
    ids = [each.id for each in (first, running, progress, state)]
    assert len(set(ids)) == len(ids)
    assert end.id == state.id


async def test_a_stream_shows_retries_and_errors(steps: Steps) -> None:
    job_id = await steps.enqueue()
    async with (
        served(steps.hf) as client,
        streaming(client, f"/v1/jobs/{job_id}/events") as stream,
        working(steps.hf),
    ):
        await stream.until("state", state="running", attempts=1)
        await steps.says.put(RuntimeError("try again"))
        await stream.until("state", state="running", attempts=2)
        await steps.says.put(Permanent("no use", code="NO_USE"))
        *_, state, end = await stream.rest()
    assert (state.data["state"], state.data["error_code"]) == ("failed", "NO_USE")
    assert "no use" in state.data["error_text"]
    assert end.event == "end"


async def test_a_resumed_stream_repeats_nothing_that_the_client_knows(steps: Steps) -> None:
    job_id = await steps.enqueue()
    path = f"/v1/jobs/{job_id}/events"
    async with served(steps.hf, stream_keep_alive_seconds=0.05) as client:
        async with streaming(client, path) as stream:
            known = (await stream.next()).id
        async with streaming(client, path, known) as resumed:
            assert await resumed.comment() == "keep-alive"
            await steps.hf.jobs.cancel(UUID(job_id))
            state, end = await resumed.rest()
    assert (state.data["state"], end.event) == ("canceled", "end")


async def test_another_server_resumes_with_the_state_that_changed_meanwhile(steps: Steps) -> None:
    job_id = await steps.enqueue()
    path = f"/v1/jobs/{job_id}/events"
    async with served(steps.hf) as client, streaming(client, path) as stream:
        known = (await stream.next()).id
    other = Holdfast(steps.hf._url)
    await other.jobs.cancel(UUID(job_id), by="ann")
    async with served(other) as client:
        async with streaming(client, path, known) as resumed:
            state, end = await resumed.rest()
            assert state.data["error_text"] == "canceled by ann"
        for final in (state.id, end.id):
            over = await client.get(path, headers={"last-event-id": final})
            assert (over.status_code, over.content) == (204, b"")
        async with streaming(client, path) as anew:
            assert await anew.rest() == [state, end]
        async with streaming(client, path, "what.is.this") as unknown:
            assert await unknown.rest() == [state, end]


async def test_a_waiting_job_that_is_retried_shows_its_new_due_time(steps: Steps) -> None:
    job_id = await steps.enqueue(delay_seconds=LATER_SECONDS)
    async with served(steps.hf) as client, streaming(client, f"/v1/jobs/{job_id}/events") as stream:
        before = await stream.next()
        await steps.hf.jobs.retry(UUID(job_id))
        after = await stream.next()
    assert (after.event, after.data["state"]) == ("state", "queued")
    assert after.data["run_at"] < before.data["run_at"]


async def test_a_requeued_job_has_a_stream_of_its_own(steps: Steps) -> None:
    job_id = await steps.enqueue()
    await steps.hf.jobs.cancel(UUID(job_id))
    again = str((await steps.hf.jobs.requeue(UUID(job_id))).id)
    async with served(steps.hf) as client:
        async with streaming(client, f"/v1/jobs/{job_id}/events") as stream:
            assert [each.event for each in await stream.rest()] == ["state", "end"]
        async with streaming(client, f"/v1/jobs/{again}/events") as stream:
            assert (await stream.next()).data["state"] == "queued"


async def test_one_stream_shows_many_jobs_and_ends_with_the_last(steps: Steps) -> None:
    ids = [await steps.enqueue(delay_seconds=LATER_SECONDS) for _ in range(3)]
    async with served(steps.hf) as client:
        async with streaming(client, events_of(*ids, ids[0])) as stream:
            first = [await stream.next() for _ in ids]
            assert {each.data["job_id"] for each in first} == set(ids)
            await steps.hf.jobs.cancel(UUID(ids[1]))
            known = await stream.until("state", job_id=ids[1], state="canceled")
        await steps.hf.jobs.cancel(UUID(ids[2]))
        async with streaming(client, events_of(*ids), known.id) as resumed:
            assert (await resumed.next()).data["job_id"] == ids[2]
            await steps.hf.jobs.cancel(UUID(ids[0]))
            state, end = await resumed.rest()
            assert (state.data["job_id"], end.data["job_ids"]) == (ids[0], ids)
        assert (
            await client.get(events_of(*ids), headers={"last-event-id": end.id})
        ).status_code == 204


async def test_jobs_of_other_tenants_and_unknown_jobs_are_not_found(steps: Steps) -> None:
    hf = steps.hf
    own, other = [await steps.enqueue(tenant=tenant) for tenant in ("acme", "umbrella")]
    key = (await hf.keys.create("reader", scopes=["read"], tenant="acme")).key
    async with served(hf) as client:
        client.headers["authorization"] = f"Bearer {key}"
        for path in (
            f"/v1/jobs/{other}/events",
            f"/v1/jobs/{uuid4()}/events",
            events_of(own, other),
            events_of(str(uuid4())),
        ):
            answer = await client.get(path)
            assert (answer.status_code, answer.json()["code"]) == (404, "job-not-found")
        async with streaming(client, events_of(own)) as stream:
            assert (await stream.next()).data["job_id"] == own


async def test_a_stream_shows_at_most_100_jobs(steps: Steps) -> None:
    async with served(steps.hf) as client:
        for path in (events_of(*[str(uuid4()) for _ in range(101)]), "/v1/jobs/events"):
            answer = await client.get(path)
            assert answer.status_code == 400
            assert answer.json()["errors"][0]["parameter"] == "ids"


async def test_a_stream_ends_soon_after_its_key_is_revoked(store_url: str) -> None:
    seam = HandSeam()
    steps = Steps(store_url, seam)
    job_id = await steps.enqueue()
    key = await steps.hf.keys.create("reader", scopes=["read"])
    async with served(steps.hf, stream_keep_alive_seconds=0.05) as client:
        client.headers["authorization"] = f"Bearer {key.key}"
        async with streaming(client, f"/v1/jobs/{job_id}/events") as stream:
            await stream.next()
            await stream.comment()
            await steps.hf.keys.revoke(key.id)
            seam.seconds += KEY_KEPT_SECONDS
            assert await stream.rest() == []


async def test_a_client_that_reads_slowly_gets_the_latest_and_no_pile(steps: Steps) -> None:
    job_id = await steps.enqueue()
    sent: list[bytes] = []
    reads, blocked = asyncio.Event(), asyncio.Event()
    api = make_api(steps.hf)
    left = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if b"event: state" in (body := message.get("body", b"")):
            blocked.set()
            await reads.wait()
        sent.append(body)

    path = f"/v1/jobs/{job_id}/events"
    async with api.state.service.running(), working(steps.hf):
        call = asyncio.create_task(call_asgi(api, path, receive, send))
        await signal(blocked)
        for step in range(30):
            await steps.says.put({"step": step, "padding": "x" * (PROGRESS_BYTES_MAX - 100)})
        await steps.says.put("done")
        await steps.hf.result(UUID(job_id))
        reads.set()
        await call
    assert b'"state":"succeeded"' in b"".join(sent)
    assert b'"step":29' in b"".join(sent)
    assert sum(map(len, sent)) < 4 * PROGRESS_BYTES_MAX
    await steps.hf.close()


async def test_a_client_that_goes_away_is_watched_for_no_longer(steps: Steps) -> None:
    job_id = await steps.enqueue()
    left, began = asyncio.Event(), asyncio.Event()
    api = make_api(steps.hf)

    async def receive() -> dict[str, Any]:
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if b"event: state" in message.get("body", b""):
            began.set()

    watch = api.state.service.watch
    async with api.state.service.running():
        call = asyncio.create_task(call_asgi(api, f"/v1/jobs/{job_id}/events", receive, send))
        await signal(began)
        assert watch.jobs == 1
        left.set()
        await call
        assert watch.jobs == 0
        await wait_until(lambda: not watch.is_ticking, "the end of the ticks")
    await steps.hf.close()


async def call_asgi(
    api: Any, path: str, receive: Callable[[], Any], send: Callable[[dict[str, Any]], Any]
) -> None:
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
    }
    await api(scope, receive, send)


async def test_a_server_that_stops_ends_its_streams_at_once(steps: Steps) -> None:
    job_id = await steps.enqueue()
    with listen("127.0.0.1", 0) as listening:
        # A stream that waits for the end of the grace time would make the test fail by its length.
        server = make_server(make_api(steps.hf), grace_seconds=10 * WAIT_SECONDS_MAX)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        host, port = listening.getsockname()
        async with (
            asyncio.timeout(WAIT_SECONDS_MAX),
            httpx.AsyncClient(base_url=f"http://{host}:{port}", timeout=None) as client,
            streaming(client, f"/v1/jobs/{job_id}/events") as stream,
        ):
            await stream.next()
            server.should_exit = True
            assert await stream.rest() == []
        await serving
    await steps.hf.close()


@pytest.mark.heavy
@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_curl_reads_a_stream(steps: Steps) -> None:
    job_id = await steps.enqueue()
    async with served(steps.hf) as client:
        curl = await asyncio.create_subprocess_exec(
            "curl", "-sSN", f"{client.base_url}/v1/jobs/{job_id}/events", stdout=subprocess.PIPE
        )
        assert curl.stdout is not None
        assert await curl.stdout.readuntil(b"\n\n") == b"retry: 2000\n\n"
        assert (await curl.stdout.readuntil(b"\n\n")).startswith(b"event: state\nid: ")
        await steps.hf.jobs.cancel(UUID(job_id))
        rest = await curl.stdout.read()
        assert b'"state":"canceled"' in rest
        assert b"event: end\n" in rest
        assert await curl.wait() == 0


JAVASCRIPT = """
const [url] = process.argv.slice(1);
let lastEventId;
for (;;) {
  const headers = lastEventId ? { "Last-Event-ID": lastEventId } : {};
  const response = await fetch(url, { headers });
  if (response.status === 204) break;
  let text = "";
  for await (const piece of response.body.pipeThrough(new TextDecoderStream())) {
    text += piece;
    const events = text.split("\\n\\n");
    text = events.pop();
    for (const event of events) {
      lastEventId = event.match(/^id: (.*)$/m)?.[1] ?? lastEventId;
      const data = event.match(/^data: (.*)$/m)?.[1];
      if (data) console.log(data);
    }
  }
}
console.log("over");
"""


@pytest.mark.heavy
@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_a_javascript_client_that_always_reconnects_is_told_when_it_is_over(
    steps: Steps, tmp_path: Path
) -> None:
    job_id = await steps.enqueue()
    async with served(steps.hf) as client:
        try:
            node = await asyncio.create_subprocess_exec(
                "node", "--input-type=module", "-e", JAVASCRIPT,
                f"{client.base_url}/v1/jobs/{job_id}/events",
                stdout=subprocess.PIPE,
            )  # fmt: skip
        except FileNotFoundError:
            missing("Node.js is not installed")
        assert node.stdout is not None
        assert json.loads(await node.stdout.readline())["state"] == "queued"
        await steps.hf.jobs.cancel(UUID(job_id))
        lines = (await node.stdout.read()).splitlines()
        assert json.loads(lines[0])["state"] == "canceled"
        assert json.loads(lines[1]) == {"job_ids": [job_id]}
        assert lines[2:] == [b"over"]
        assert await node.wait() == 0
