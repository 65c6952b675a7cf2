"""The jobs of Holdfast's adapter, in a module that child processes can import."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from bench.adapters.contract import Surroundings, handled
from holdfast import Context, Holdfast
from holdfast.runtime.seam import Seam
from holdfast.wakeups.registry import make_messengers

WAIT_SECONDS = 0.01
BURN_SECONDS = 0.005
REPORT_SECONDS = 1.0
CONNECTED_LOOK_SECONDS = 0.01
GRACE_SECONDS = 1.0  # only jobs that report progress are still running when a worker is stopped


class DeafSeam(Seam):
    """A machine on which no notification arrives, as behind a pooler: jobs are found by polling."""

    async def connect_postgres(self, url: str, **options: Any) -> Any:
        kind: Any = options["connection_class"]

        class Deaf(kind):  # type: ignore[misc]
            async def add_listener(self, channel: str, callback: Any) -> None:
                return

        return await super().connect_postgres(url, **options | {"connection_class": Deaf})


around = Surroundings.read()
messengers = make_messengers(around.wakeups, Seam()) if "://" in around.wakeups else []
hf = Holdfast(
    around.database_url or None,
    seam=None if around.wakeups == "notify" else DeafSeam(),
    messengers=messengers,
    grace_seconds=GRACE_SECONDS,
)


@hf.job
async def nothing(sent_at: float, padding: str) -> None:
    handled(sent_at)


@hf.job
async def wait(sent_at: float, padding: str) -> None:
    await asyncio.sleep(WAIT_SECONDS)
    handled(sent_at)


@hf.job(name="burn-thread")
def burn_in_a_thread(sent_at: float, padding: str) -> None:
    burn()
    handled(sent_at)


@hf.job(name="burn-process", executor="process")
def burn_in_a_process(sent_at: float, padding: str) -> None:
    burn()
    handled(sent_at)


@hf.job
async def report(ctx: Context) -> None:
    while True:
        await ctx.progress({"at": time.time()})
        await asyncio.sleep(REPORT_SECONDS)


async def connected() -> None:
    """Wait for the brokers, as any process that has run for a second has done."""
    for each in messengers:
        each.connect()
        while not each.status().live:  # noqa: ASYNC110 - only its status tells
            await asyncio.sleep(CONNECTED_LOOK_SECONDS)


def burn() -> None:
    began = time.thread_time()
    while time.thread_time() - began < BURN_SECONDS:
        pass


JOBS = {job.name: job for job in (nothing, wait, burn_in_a_thread, burn_in_a_process)}
