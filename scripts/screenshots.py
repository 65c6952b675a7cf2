"""Make screenshots of the dashboard's pages: `make screenshots`.

A busy shop runs for a while, with two worker processes. Every page is photographed in light and
dark and at the size of a phone. The pages of systems are those of `holdfast demo all --serve`.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from playwright.async_api import Page

from scripts.pictures.__main__ import PICTURES, surroundings, working
from tests.browser.browsing import DESKTOP, PHONE, Scheme, a_browser, a_page

LOOKS: Final[dict[str, tuple[tuple[int, int], Scheme]]] = {
    "light": (DESKTOP, "light"),
    "dark": (DESKTOP, "dark"),
    "phone": (PHONE, "light"),
}
# Where a page is: a path, and the link on it to follow, if any.
PAGES: Final[dict[str, tuple[str, str | None]]] = {
    "overview": ("/", None),
    "jobs": ("/ui/jobs", None),
    "job": ("/ui/jobs?q=state:dead", r"/ui/jobs/[0-9a-f-]{36}"),
    "dead-letters": ("/ui/dead", None),
    "group": ("/ui/dead", r"/ui/dead/[0-9a-f]{8,}"),
    "queues": ("/ui/queues", None),
    "queue": ("/ui/queues/mail", None),
    "breakers": ("/ui/breakers", None),
    "workers": ("/ui/workers", None),
    "bulk": ("/ui/bulk", None),
    "run": ("/ui/run/resize", None),
    "audit": ("/ui/audit", None),
    "keys": ("/ui/keys", None),
}
_ITEM: Final = r"/ui/systems/[\w-]+/[0-9a-f-]{36}"
SYSTEMS: Final[dict[str, tuple[str, str | None]]] = {
    "webhooks": ("/ui/systems/webhooks", None),
    "webhook-subscription": ("/ui/systems/webhook-subscriptions", _ITEM),
    "webhook-dead-letter": ("/ui/systems/webhook-dead-letters", _ITEM),
    "passport": ("/ui/systems/passport", _ITEM),
    "convert": ("/ui/systems/convert", None),
    "compute": ("/ui/systems/compute", _ITEM),
    "documents": ("/ui/systems/documents", None),
}
DEMO_SECONDS: Final = 300.0  # to run all five systems
FIRST_LOOK_SECONDS: Final = 20.0  # so that the charts have something to show
SETTLE_SECONDS: Final = 0.5
READY: Final = re.compile(r"dashboard is at (?P<url>http://[\w.:]+)/.*?(?P<key>hfk_\w+)", re.S)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--out", type=Path, default=PICTURES.parent / "screenshots")
    options.add_argument("--seconds", type=float, default=FIRST_LOOK_SECONDS)
    options.add_argument("pages", nargs="*", default=[*PAGES, *SYSTEMS])
    given = options.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = surroundings(folder)
        if names := [name for name in given.pages if name in PAGES]:
            with working(folder, environment), serving(folder, environment) as url:
                time.sleep(given.seconds)
                asyncio.run(photograph(url, given.out, names))
        if names := [name for name in given.pages if name in SYSTEMS]:
            with demonstrating(folder) as (url, key):
                asyncio.run(photograph(url, given.out, names, key))


@contextmanager
def serving(folder: Path, environment: dict[str, str]) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        fd = listening.fileno()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        command = [sys.executable, "-m", "holdfast", "serve", "shop:hf", "--fd", str(fd)]
        server = subprocess.Popen(
            command, cwd=folder, env=environment, pass_fds=[fd], stderr=subprocess.DEVNULL
        )
        try:
            wait_for(url)
            yield url
        finally:
            server.terminate()
            server.wait(30)


@contextmanager
def demonstrating(folder: Path) -> Iterator[tuple[str, str]]:
    """All five systems on one service: its address, and a key."""
    command = [sys.executable, "-m", "holdfast", "demo", "all", "--serve", "--out", "demo"]
    log = folder / "demo.txt"
    with log.open("wb") as output:
        demo = subprocess.Popen(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT)
        try:
            until = time.monotonic() + DEMO_SECONDS
            while (found := READY.search(log.read_text(encoding="utf-8"))) is None:
                if demo.poll() is not None or time.monotonic() > until:
                    raise SystemExit(f"the demo does not serve: {log.read_text(encoding='utf-8')}")
                time.sleep(0.2)
            yield found["url"], found["key"]
        finally:
            demo.send_signal(signal.SIGINT)
            demo.wait(60)


def wait_for(url: str) -> None:
    for _ in range(100):
        with suppress(OSError), urllib.request.urlopen(f"{url}/v1/health/live"):
            return
        time.sleep(0.1)
    raise SystemExit(f"{url} does not answer")


async def photograph(url: str, out: Path, names: Sequence[str], key: str | None = None) -> None:
    async with a_browser() as browser:
        for look, (size, scheme) in LOOKS.items():
            async with a_page(browser, url, size=size, scheme=scheme) as page:
                if key is not None:
                    await log_in(page, key)
                for name in names:
                    await open_page(page, *(PAGES | SYSTEMS)[name])
                    await asyncio.sleep(SETTLE_SECONDS)
                    path = out / f"{name}-{look}.png"
                    await page.screenshot(path=path)
                    print(f"{path} ({path.stat().st_size // 1024} KiB)", flush=True)


async def log_in(page: Page, key: str) -> None:
    await page.goto("/ui/login")
    await page.get_by_label("Key").fill(key)
    await page.get_by_role("button", name="Log in").click()
    await page.wait_for_url(lambda url: "/ui/login" not in url)


async def open_page(page: Page, path: str, link: str | None) -> None:
    await page.goto(path)
    if link is not None:
        hrefs = await page.locator("main a").evaluate_all("all => all.map(a => a.pathname)")
        await page.goto(next(each for each in hrefs if re.fullmatch(link, each)))


if __name__ == "__main__":
    main()
