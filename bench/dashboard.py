"""`python -m bench.dashboard`: how long each page of the dashboard takes with a long past.

Five million finished jobs, 200,000 of them dead, on PostgreSQL. Every page has to be there within
100 ms at the 95th percentile.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from bench.parts import tell
from bench.past import write_past
from bench.place import made_place
from holdfast import Holdfast
from holdfast.api.server import listen

P95_SECONDS_MAX: Final = 0.1
WARM_UP: Final = 5
FOLD_SECONDS_MAX: Final = 900.0
SERVE: Final = ("-m", "holdfast", "serve", "bench.dashboard_app:hf", "--log-level")
PAGES: Final = (
    "/",
    "/ui/jobs",
    "/ui/jobs?q=state%3Adead",
    "/ui/jobs?q=name%3Anothing+queue%3Adefault",
    "/ui/jobs?q=error%3AERROR+since%3A3d",
    "/ui/dead",
    "/ui/queues",
    "/ui/queues/default",
    "/ui/breakers",
    "/ui/workers",
    "/ui/bulk",
    "/ui/run",
    "/ui/audit",
    "/ui/keys",
)
LINKED: Final = (  # the first link of this form on a page is a page of its own
    ("/ui/jobs", re.compile(r'href="(/ui/jobs/[0-9a-f-]{36})"')),
    ("/ui/jobs?q=state%3Adead", re.compile(r'href="(/ui/jobs\?[^"]*cursor=[^"]*)"')),
    ("/ui/dead", re.compile(r'href="(/ui/dead/[0-9a-f]+)"')),
)


class Times(NamedTuple):
    path: str
    p50_ms: float
    p95_ms: float

    @property
    def is_fast(self) -> bool:
        return self.p95_ms < P95_SECONDS_MAX * 1000


def read(url: str) -> str:
    request = urllib.request.Request(url, headers={"accept": "text/html"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        text: str = answer.read().decode()
        return text


def measured(address: str, path: str, requests: int) -> Times:
    seconds = []
    for number in range(WARM_UP + requests):
        began = time.perf_counter()
        read(address + path)
        if number >= WARM_UP:
            seconds.append(time.perf_counter() - began)
    seconds.sort()
    return Times(path, *(1000 * seconds[int(len(seconds) * share)] for share in (0.5, 0.95)))


@contextmanager
def service(url: str) -> Iterator[str]:
    with listen("127.0.0.1", 0) as listening:
        fd = listening.fileno()
        command = [sys.executable, *SERVE, "error", "--fd", str(fd)]
        environment = {**os.environ, "HOLDFAST_DATABASE_URL": url}
        with subprocess.Popen(command, pass_fds=[fd], env=environment) as server:
            try:
                yield f"http://127.0.0.1:{listening.getsockname()[1]}"
            finally:
                server.terminate()


def wait_for_groups(address: str, dead: int) -> None:
    """Wait until the server has counted all dead jobs into groups."""
    until = time.monotonic() + FOLD_SECONDS_MAX
    while time.monotonic() < until:
        groups = json.loads(read(f"{address}/v1/dead/groups"))["groups"]
        counted = sum(each["jobs"] for each in groups)
        tell(f"{counted:,} of {dead:,} dead jobs are in groups")
        if counted >= dead:
            return
        time.sleep(1)
    raise SystemExit("the dead jobs were not counted in time")


def found_pages(address: str) -> Sequence[str]:
    links = (pattern.search(read(address + path)) for path, pattern in LINKED)
    return [*PAGES, *(each[1].replace("&amp;", "&") for each in links if each)]


async def fill(url: str, jobs: int, dead_every: int) -> None:
    hf = Holdfast(url)
    await hf.migrate()
    await hf.close()
    await write_past(
        url, jobs, lambda done: tell(f"{done:,} of {jobs:,} jobs"), dead_every=dead_every
    )


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--jobs", type=int, default=5_000_000)
    options.add_argument("--dead-every", type=int, default=25, help="one of this many is dead")
    options.add_argument("--requests", type=int, default=60, help="of each page")
    given = options.parse_args()
    with made_place(with_postgres=True, addresses={}) as place:
        url, remove = place.database("postgresql")
        asyncio.run(fill(url, given.jobs, given.dead_every))
        with service(url) as address:
            wait_for_groups(address, -(-given.jobs // given.dead_every))
            found = [measured(address, path, given.requests) for path in found_pages(address)]
        remove()
    tell("")
    for each in sorted(found, key=lambda each: -each.p95_ms):
        slow = "" if each.is_fast else "  SLOW"
        print(f"{each.path[:60]:60} p50 {each.p50_ms:6.1f} ms  p95 {each.p95_ms:6.1f} ms{slow}")
    sys.exit(not all(each.is_fast for each in found))


if __name__ == "__main__":
    main()
