"""The recipes of the guide to middleware, with the real libraries."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import sentry_sdk
import structlog
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from holdfast import CallNext, Context, Holdfast, Retry, Snooze
from tests.support.forks import ROOT

PAGE = (ROOT / "docs/guides/middleware.md").read_text(encoding="utf-8")


def install(hf: Holdfast, library: str) -> None:
    """Run the page's code for a library on this object."""
    (code,) = re.findall(rf"^```python\n(import {library}\n.*?)^```$", PAGE, re.MULTILINE | re.S)
    exec(code, {"hf": hf, "Any": Any, "CallNext": CallNext, "Context": Context})


class Collecting(Transport):
    """Keeps what would be sent to Sentry."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Any] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        self.events.append(envelope.get_event())


@pytest.fixture
def sentry() -> Iterator[Collecting]:
    transport = Collecting()
    options: dict[str, Any] = {"shutdown_timeout": 0}
    # Integrations patch the standard library for good.
    options["default_integrations"] = False
    sentry_sdk.init("https://key@sentry.invalid/1", transport=transport, **options)
    yield transport
    sentry_sdk.init(**options)


async def test_sentry_gets_every_failure_with_the_job_and_its_own_breadcrumbs(
    local_hf: Holdfast, sentry: Collecting
) -> None:
    install(local_hf, "sentry_sdk")
    once = local_hf.job(retry=Retry.none)

    @once
    async def on_loop() -> None:
        sentry_sdk.add_breadcrumb(message="on the loop")
        raise ValueError("no")

    @once
    def in_thread() -> None:
        sentry_sdk.add_breadcrumb(message="in a thread")
        raise KeyError("no")

    @local_hf.job(retry=Retry.none, timeout_seconds=0.05)
    def late(ctx: Context) -> None:
        ctx.wait_canceled(60)

    @local_hf.job
    async def snoozes(ctx: Context) -> None:
        raise Snooze(3600)

    jobs = [await job.enqueue() for job in (on_loop, in_thread, late, snoozes)]
    await local_hf.run_due()
    seen = {
        event["tags"]["job"]: (
            event["exception"]["values"][-1]["type"],
            event["tags"]["job_id"],
            event["tags"]["attempt"],
            [crumb["message"] for crumb in event["breadcrumbs"]["values"]],
        )
        for event in sentry.events
    }
    assert len(sentry.events) == 3
    kept = {
        name: (*rest, [each for each in crumbs if "the loop" in each or "a thread" in each])
        for name, (*rest, crumbs) in seen.items()
    }
    assert kept == {
        "on_loop": ("ValueError", str(jobs[0].id), 1, ["on the loop"]),
        "in_thread": ("KeyError", str(jobs[1].id), 1, ["in a thread"]),
        "late": ("JobTimeout", str(jobs[2].id), 1, []),
    }


async def test_structlog_binds_the_job_to_every_line(local_hf: Holdfast) -> None:
    lines: list[Any] = []

    def collect(logger: Any, method: str, line: Any) -> Any:
        lines.append(line)
        raise structlog.DropEvent

    structlog.configure(processors=[structlog.contextvars.merge_contextvars, collect])
    try:
        install(local_hf, "structlog")
        log = structlog.get_logger()

        @local_hf.job
        async def on_loop() -> None:
            log.info("working")

        @local_hf.job
        def in_thread() -> None:
            log.info("working")

        jobs = await local_hf.enqueue_many([on_loop.call(), in_thread.call()])
        await local_hf.run_worker(until_empty=True)
        log.info("between jobs")
    finally:
        structlog.reset_defaults()
    expected = [
        {"event": "working", "job_id": str(job.id), "job": job.name, "attempt": 1} for job in jobs
    ]
    *of_jobs, last = lines
    assert sorted(of_jobs, key=lambda line: str(line["job_id"])) == expected
    assert last == {"event": "between jobs"}
