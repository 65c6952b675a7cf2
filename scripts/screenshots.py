"""Make screenshots of the dashboard's pages: `make screenshots`.

A shop runs for a while, with two worker processes and an operator; a month of samples lets it look
as if it had been open for longer. Every page is photographed in light and dark and at the size of a
phone. The pages of systems are those of `holdfast demo all --serve`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
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
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

import httpx
from playwright.async_api import Page

from scripts.pictures.__main__ import PICTURES, surroundings, working
from scripts.pictures.past import age_errors, write_samples
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
    "job": ("/ui/jobs?q=name:refund", r"/ui/jobs/[0-9a-f-]{36}"),
    "dead-letters": ("/ui/dead", None),
    "group": ("/ui/dead", r"/ui/dead/[0-9a-f]{8,}"),
    "queues": ("/ui/queues", None),
    "queue": ("/ui/queues/mail", None),
    "breakers": ("/ui/breakers", None),
    "workers": ("/ui/workers", None),
    "bulk": ("/ui/bulk", None),
    "bulk-operation": ("/ui/bulk", r"/ui/bulk/[0-9a-f-]{36}"),
    "run": ("/ui/run/resize", None),
    "audit": ("/ui/audit", None),
    "keys": ("/ui/keys", None),
}
KEYS: Final = (
    ("shop", "--scope", "read,enqueue", "--tenant", "acme"),
    ("night shift", "--scope", "read,operate", "--expires", "90d"),
    ("wall display", "--scope", "read"),
)
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
DATABASE: Final = "jobs.db"
OPEN_SECONDS: Final = 400.0
LIVE: Final = timedelta(seconds=20)  # of samples that are the shop's own
SHARE: Final = 0.1  # so that two worker processes keep up
DEMO_SECONDS: Final = 300.0  # to run all five systems
FIRST_LOOK_SECONDS: Final = 20.0  # so that the charts have something to show
AFTER_SECONDS: Final = 8.0  # for jobs to retry, and to be parked
SETTLE_SECONDS: Final = 0.5
FRAME_SECONDS: Final = 3.0  # to draw a PDF
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
            key = prepare(folder, environment)
            with (
                working(folder, environment, seconds=OPEN_SECONDS, share=SHARE),
                serving(folder, environment) as url,
            ):
                time.sleep(given.seconds)
                write_samples(folder / DATABASE, datetime.now(UTC) - LIVE)
                operate(url, key)
                time.sleep(AFTER_SECONDS)
                age_errors(folder / DATABASE, datetime.now(UTC))
                asyncio.run(photograph(url, given.out, names, key))
        if names := [name for name in given.pages if name in SYSTEMS]:
            with demonstrating(folder) as (url, key):
                asyncio.run(photograph(url, given.out, names, key))


def prepare(folder: Path, environment: dict[str, str]) -> str:
    """Migrate the shop's database, and create keys; return an administrator's."""
    holdfast = [sys.executable, "-m", "holdfast"]
    run = partial(subprocess.check_output, cwd=folder, env=environment, text=True)
    run([*holdfast, "migrate", "shop:hf"])
    for name, *options in KEYS:
        run([*holdfast, "keys", "create", name, "--by", "ann", *options])
    found = run([*holdfast, "keys", "create", "ann", "--by", "ann", "--scope", "all", "--json"])
    key: str = json.loads(found)["key"]
    return key


def operate(url: str, key: str) -> None:
    """What an operator does on an evening with errors."""
    headers = {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=url, headers=headers, timeout=30) as api:

        def post(path: str, body: object) -> dict[str, Any]:
            answer = api.post(f"/v1/{path}", json=body, headers={"Idempotency-Key": token_hex(6)})
            answer.raise_for_status()
            found: dict[str, Any] = answer.json()
            return found

        def requeue(group: str, rate: float, because: str) -> None:
            body = {"action": "requeue", "filter": {"fingerprint": group}}
            change = post("bulk", body | {"jobs_per_second": rate, "because": because})
            post(f"bulk/{change['id']}/start", {})

        groups = {each["error_code"]: each["fingerprint"] for each in _groups(api)}
        order = {"correlation_id": "order-1042", "tenant": "acme"}
        refund = {"order": 1042, "cents": 4900, "reason": "arrived broken"}
        post("jobs", {"name": "refund", "arguments": refund, "tags": ["eu", "vip"], **order})
        post("jobs", {"name": "send_receipt", "arguments": {"order": 1042}, **order})
        post("jobs", {"name": "resize", "arguments": {"order": 1042}, **order})
        post(
            "breakers/payments.example.com/open", {"because": "the bank's maintenance, until 8 pm"}
        )
        post(f"dead/groups/{groups['NO_RECEIPT']}/acknowledge", {"note": "printer 2 is on fire"})
        post(f"dead/groups/{groups['BOOKS_LOCKED']}/resolve", {"version": "1.4"})
        requeue(groups["BAD_IMAGE"], 50, "the converter is back")
        requeue(groups["BAD_ADDRESS"], 0.2, "addresses were corrected")


def _groups(api: httpx.Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.get("/v1/dead/groups").raise_for_status().json()["groups"]
    return found


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
                    frames = await page.locator("iframe").count()
                    await asyncio.sleep(FRAME_SECONDS if frames else SETTLE_SECONDS)
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
