"""A canary in all that an encrypted job carries: without the key, nothing tells it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from holdfast import Breaker, Context, Holdfast, Job, Retry, RetryAfter, State
from holdfast.cli.main import run
from holdfast.domain.encryption import make_keys
from holdfast.observability import logs
from holdfast.operations.secrets import VARIABLE
from tests.observability.test_tracing import provided
from tests.support.api import served
from tests.support.dumping import dump, found
from tests.support.running import QUICK

CANARY = "c4n4ry-in-an-encrypted-job"
COMMANDS = [
    ["jobs", "list"],
    ["jobs", "list", "--json"],
    ["dead", "list", "--json"],
    ["dead", "groups", "--json"],
    ["breakers", "list"],
    ["top", "--once"],
    ["doctor"],
]
OF_EACH_JOB = [["jobs", "show"], ["jobs", "show", "--json"], ["jobs", "why"], ["dead", "show"]]
PATHS = ["/v1/jobs", "/v1/dead", "/v1/dead/groups", "/v1/breakers", "/v1/overview"]
PATHS_OF_EACH_JOB = ["", "/result", "/attempts", "/why", "/related"]


def make_app(url: str) -> Holdfast:
    hf = Holdfast(url, **QUICK, log_errors=True)
    options: dict[str, Any] = {"encrypted": True, "retry": Retry.none()}

    @hf.job(**options)
    async def succeed(ctx: Context, told: str) -> str:
        await ctx.progress({"at": told})

        def fail_after_commit() -> None:
            raise RuntimeError(told)

        async with ctx.completing() as connection:
            ctx.set_result([told])
            hf.after_commit(connection, fail_after_commit)
        return told

    @hf.job(**options, breaker=Breaker("bank", failures=1), name="fail")
    def fail(told: str) -> None:
        try:
            raise KeyError(told)
        except KeyError as error:
            error.add_note(told)
            raise ValueError(f"about {told}") from error

    @hf.job(**options | {"retry": Retry.schedule([3600.0])})
    async def later(told: str) -> None:
        raise RetryAfter(3600, told)

    @hf.job(**options)
    async def group(told: str) -> None:
        raise ExceptionGroup(told, [ValueError(told), KeyError(told)])

    @hf.job(**options, timeout_seconds=0.01)
    async def late(told: str) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ValueError(told) from None

    @hf.job(**options)
    async def unstorable(told: str) -> Any:
        return {told: object()}

    @hf.on_failure
    def complain(ctx: Context, error: BaseException) -> None:
        raise RuntimeError(f"hook: {error} {CANARY}")

    return hf


@contextmanager
def logged() -> Iterator[StringIO]:
    """All log lines with their tracebacks, in the two forms that a worker writes."""
    written, root = StringIO(), logging.getLogger()
    handlers = [logging.StreamHandler(written) for _ in range(3)]
    handlers[0].setFormatter(logs._JsonFormatter())
    handlers[1].setFormatter(logs._TextFormatter(colored=False))
    before = root.level
    root.setLevel(logging.DEBUG)
    for handler in handlers:
        root.addHandler(handler)
    try:
        yield written
    finally:
        root.setLevel(before)
        for handler in handlers:
            root.removeHandler(handler)


async def run_jobs(url: str) -> tuple[list[Job], str]:
    """Run each of the jobs; return them, and the metrics and spans."""
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with provided(provider):
        async with make_app(url) as hf:
            await hf.metrics()
            names = [name for name in hf.names if name != "fail"]
            jobs = [await hf._functions[name].enqueue(CANARY) for name in (*names, "fail", "fail")]
            await hf.run_due()
            seen = [await hf.get(job.id) for job in jobs]
            metrics = await hf.metrics()
    spans = "\n".join(span.to_json() for span in exporter.get_finished_spans())
    assert "fail" in spans
    return seen, metrics + spans


async def answers(url: str, jobs: list[Job]) -> str:
    async with make_app(url) as hf, served(hf) as client:
        paths = [f"/v1/jobs/{job.id}{rest}" for job in jobs for rest in PATHS_OF_EACH_JOB]
        return "\n".join([(await client.get(path)).text for path in (*PATHS, *paths)])


def test_nothing_tells_what_an_encrypted_job_carries(
    store_url: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, make_keys("k1"))
    with logged() as log:
        jobs, told = asyncio.run(run_jobs(store_url))
    states = {job.name: job.state for job in jobs}
    assert states["succeed"] is State.SUCCEEDED
    assert list(states.values()).count(State.SUCCEEDED) == 1
    assert all(job.arguments == {"told": CANARY} for job in jobs)  # with the key
    assert "after_commit_failed" in log.getvalue()
    assert "hook_failed" in log.getvalue()
    assert "in fail" in log.getvalue()  # the place of an error is told
    monkeypatch.setenv(VARIABLE, make_keys("k2"))
    some = [next(job for job in jobs if job.name == name) for name in ("succeed", "fail")]
    for words in [*COMMANDS, *([*each, str(job.id)] for job in some for each in OF_EACH_JOB)]:
        run([*words, "--database", store_url])
    edit = ["dead", "requeue", str(some[1].id), "--set", "told=x", "--database", store_url]
    assert run(edit) == 1
    printed = capfd.readouterr()
    assert "encrypted with key k1" in printed.out
    assert "can't be edited" in printed.err
    told += printed.out + printed.err + asyncio.run(answers(store_url, some))
    assert '{"encrypted":true,"key":"k1"}' in told
    assert CANARY not in told
    assert CANARY not in log.getvalue()
    assert found(CANARY, dump(store_url)) == []
