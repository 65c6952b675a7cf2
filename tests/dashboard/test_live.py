"""The event stream of open pages: what it tells, when it ends, and what it costs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.responses import Response

from holdfast import Holdfast
from holdfast.api import make_api
from holdfast.api.limits import KEY_KEPT_SECONDS
from holdfast.api.server import Server, make_server
from holdfast.dashboard import Pages, Site, Visit
from holdfast.dashboard.limits import LIVE_JOBS_MAX
from holdfast.dashboard.live import Viewer
from tests.support.api import client_of
from tests.support.dashboard import Browser, LaterSeam, with_pages
from tests.support.events import streaming
from tests.support.processes import wait_until
from tests.support.running import WAIT_SECONDS_MAX

STREAM = "/ui/live"


class Scene:
    """A server whose site the test can look at."""

    def __init__(self, url: str, keep_alive_seconds: float = 0.05) -> None:
        self.seam = LaterSeam()
        self.hf = Holdfast(url, seam=self.seam)
        self.job = self.hf.job(_add)
        self._sites: list[Site] = []
        pages = with_pages(self._note)
        options = {"pages": pages, "stream_keep_alive_seconds": keep_alive_seconds}
        self.server: Server = make_server(make_api(self.hf, upkeep=False, **options))  # type: ignore[arg-type]

    @property
    def site(self) -> Site:
        return self._sites[0]

    def _note(self, site: Site) -> Pages:
        self._sites.append(site)
        pages = Pages()

        @pages.post("/ui/test/touch", needs="read")
        async def touch(visit: Visit) -> Response:
            return visit.redirect("/")

        return pages

    async def enqueue(self) -> str:
        return str((await self.job.enqueue(1)).id)


async def _add(a: int) -> int:
    return a


@pytest.fixture
def scene(store_url: str) -> Scene:
    return Scene(store_url)


@pytest.fixture
async def browser(scene: Scene) -> AsyncIterator[Browser]:
    async with client_of(scene.server) as client:
        yield Browser(client)


async def told(viewer: Viewer) -> None:
    assert await viewer.changed(WAIT_SECONDS_MAX)


async def test_an_open_page_hears_of_new_jobs_and_of_ended_ones(
    scene: Scene, browser: Browser
) -> None:
    async with streaming(browser.client, STREAM) as stream:
        await scene.enqueue()
        first = await stream.next()
        await scene.hf.run_due()
        second = await stream.next()
        assert (first.event, second.event) == ("changed", "changed")
        assert first.id != second.id
        assert first.data == {}  # each page reads what its own viewer may see


async def test_a_page_that_reconnects_is_told_at_once_if_it_missed_something(
    scene: Scene, browser: Browser
) -> None:
    live = scene.site.live
    with live.watching() as viewer:
        known = live.event_id
        with live.watching(known) as again:
            assert not again.ready.is_set()
        live.hint()
        await told(viewer)
        for missed in (known, "of another server-1", "x"):
            with live.watching(missed) as late:
                assert late.ready.is_set()
        known = live.event_id
    with live.watching(known) as late:  # while nobody watched, nobody looked
        assert late.ready.is_set()


async def test_a_tenant_is_told_at_a_steady_pace_whatever_others_do(
    scene: Scene, browser: Browser
) -> None:
    """Events that others cause would tell how busy they are."""
    key = await scene.hf.keys.create("ann", scopes=["read"], tenant="acme")
    await browser.log_in(key, first_page="/ui/jobs")
    browser.client.headers["cookie"] = cookies_of(browser)
    live = scene.site.live
    async with streaming(browser.client, STREAM) as stream:
        await stream.paragraph()
        with live.watching() as other:
            await scene.enqueue()
            await told(other)
            (paced,) = live._paced
            assert not paced.ready.is_set()
        assert [await stream.paragraph() for _ in range(2)] == [["event: changed", "data: {}"]] * 2
    await wait_until(lambda: not live._paced, "nobody watches")


async def test_a_tenant_without_company_keeps_no_hub_busy(scene: Scene, browser: Browser) -> None:
    key = await scene.hf.keys.create("ann", scopes=["read"], tenant="acme")
    await browser.log_in(key, first_page="/ui/jobs")
    browser.client.headers["cookie"] = cookies_of(browser)
    async with streaming(browser.client, STREAM) as stream:
        assert (await stream.next()).event == "changed"
        assert not scene.site.live.is_beating
        scene.server.stop()
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await stream.rest()


async def test_a_tenant_follows_only_jobs_of_its_own(scene: Scene, browser: Browser) -> None:
    key = await scene.hf.keys.create("ann", scopes=["read"], tenant="acme")
    await browser.log_in(key, first_page="/ui/jobs")
    browser.client.headers["cookie"] = cookies_of(browser)
    own = (await scene.job.options(tenant="acme").enqueue(1)).id
    async with streaming(browser.client, f"{STREAM}?job={own}") as stream:
        assert (await stream.next()).event == "changed"
        assert scene.server.service.watch.jobs == 1
    theirs = await scene.enqueue()
    answer = await browser.get(f"{STREAM}?job={theirs}", {"accept": "text/event-stream"})
    assert answer.status_code == 404


async def test_what_one_viewer_changes_the_others_see_without_a_look(
    scene: Scene, browser: Browser
) -> None:
    # The overview examines the database, and hints when it is done.
    key = await scene.hf.keys.create("ann", scopes=["read"])
    await browser.log_in(key, first_page="/ui/jobs")
    live = scene.site.live
    assert not live._hinted.is_set()
    await browser.post("/ui/test/touch")
    assert live._hinted.is_set()
    with live.watching() as viewer:
        await told(viewer)


async def test_a_followed_job_tells_its_progress(scene: Scene, browser: Browser) -> None:
    job_id = await scene.enqueue()
    async with streaming(browser.client, f"{STREAM}?job={job_id}") as stream:
        assert (await stream.next()).event == "changed"
        assert scene.server.service.watch.jobs == 1
        await scene.hf.run_due()
        assert (await stream.next()).event == "changed"
    await wait_until(lambda: scene.server.service.watch.jobs == 0, "nobody follows the job")


async def test_what_can_not_be_followed_is_refused(scene: Scene, browser: Browser) -> None:
    job_id = await scene.enqueue()
    many = "&".join(f"job=00000000-0000-0000-0000-0000000000{each:02}" for each in range(11))
    assert LIVE_JOBS_MAX < 11
    for query, status in (
        ("job=x", 400),
        (many, 400),
        (f"job={job_id}&job={'0' * 32}", 404),
    ):
        answer = await browser.get(f"{STREAM}?{query}", {"accept": "text/event-stream"})
        assert (query, answer.status_code) == (query, status)


async def test_nothing_is_read_while_nobody_watches(scene: Scene, browser: Browser) -> None:
    live = scene.site.live
    async with streaming(browser.client, STREAM) as stream:
        await stream.comment()
        assert live.is_beating
    await wait_until(lambda: not live.is_beating, "the hub is idle")
    async with streaming(browser.client, STREAM) as stream:  # and begins anew
        await scene.enqueue()
        assert (await stream.next()).event == "changed"


async def test_an_open_stream_counts_as_a_waiting_request(scene: Scene, browser: Browser) -> None:
    key = await scene.hf.keys.create("ann", scopes=["read"])
    await browser.log_in(key, first_page="/ui/jobs")
    headers = {"cookie": cookies_of(browser)}
    waiting = scene.server.service.waiting
    browser.client.headers.update(headers)
    async with streaming(browser.client, STREAM) as stream:
        await stream.comment()
        assert waiting._counts == {key.id: 1}
        assert scene.server.service.traffic.streams == 1
    await wait_until(lambda: not waiting._counts, "nobody waits")


def cookies_of(browser: Browser) -> str:
    return "; ".join(f"{name}={text}" for name, text in browser.cookies.items())


async def test_a_stream_ends_soon_after_its_key_is_revoked(scene: Scene, browser: Browser) -> None:
    key = await scene.hf.keys.create("ann", scopes=["read"])
    await browser.log_in(key, first_page="/ui/jobs")
    browser.client.headers["cookie"] = cookies_of(browser)
    async with streaming(browser.client, STREAM) as stream:
        await stream.comment()
        await scene.hf.keys.revoke(key.id)
        scene.seam.pass_time(KEY_KEPT_SECONDS)
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await stream.rest()
    assert (await browser.get(STREAM, {"accept": "text/event-stream"})).status_code == 401


async def test_streams_end_when_the_server_stops(scene: Scene, browser: Browser) -> None:
    async with streaming(browser.client, STREAM) as stream:
        await stream.comment()
        scene.server.stop()
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await stream.rest()
    assert not scene.site.live.is_beating or scene.server.service.stopping.is_set()


async def test_a_database_that_goes_away_for_a_while_ends_no_stream(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    scene = Scene(f"sqlite:///{path}")
    async with client_of(scene.server) as client:
        await scene.enqueue()
        with scene.site.live.watching() as viewer:
            await told(viewer)
            path.rename(tmp_path / "away.db")
            scene.site.live.hint()
            await told(viewer)
            (tmp_path / "away.db").rename(path)
            await scene.enqueue()
            await told(viewer)
        assert (await client.get("/")).status_code == 200
