"""Traces: one from an enqueue across all attempts, with no more in them than may be told."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec
import pytest
from opentelemetry import context, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import SpanContext, SpanKind, StatusCode, TraceFlags

from holdfast import BadArguments, Context, Holdfast, Permanent, Retry, Snooze, State
from holdfast.domain.job import Claimed, Settlement
from holdfast.observability.tracing import EARLIER_MAX, Attempts, Serving
from holdfast.runtime.seam import Seam
from holdfast.testing.borrowed import borrowed
from tests.support.api import served
from tests.support.jobs import claimed
from tests.support.processes import PROGRAM_SECONDS_MAX
from tests.support.running import QUICK, execute, seen_events, signal, working
from tests.worker import child_jobs

SECRET = "s3cr3t"
SOON = Retry.schedule([0.01] * 3)


class Spans:
    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    def kind(self, kind: SpanKind) -> list[ReadableSpan]:
        """In the order in which they began."""
        found = [span for span in self._exporter.get_finished_spans() if span.kind is kind]
        return sorted(found, key=lambda span: span.start_time or 0)

    @property
    def enqueues(self) -> list[ReadableSpan]:
        return self.kind(SpanKind.PRODUCER)

    @property
    def attempts(self) -> list[ReadableSpan]:
        return self.kind(SpanKind.CONSUMER)


@contextmanager
def provided(provider: TracerProvider | None) -> Iterator[None]:
    """Set a provider up, as an application does. That can't be undone by the interface."""
    before, trace._TRACER_PROVIDER = trace._TRACER_PROVIDER, provider
    try:
        yield
    finally:
        trace._TRACER_PROVIDER = before
        if provider is not None:
            provider.shutdown()


@pytest.fixture
def spans() -> Iterator[Spans]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with provided(provider):
        yield Spans(exporter)


def identity(span: ReadableSpan) -> SpanContext:
    found = span.get_span_context()
    assert found is not None
    return found


def span_id(span: ReadableSpan) -> int:
    return identity(span).span_id


def trace_id(span: ReadableSpan) -> int:
    return identity(span).trace_id


def parent_id(span: ReadableSpan) -> int | None:
    return span.parent and span.parent.span_id


def linked(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


def told(spans: Sequence[ReadableSpan]) -> str:
    return "\n".join(span.to_json() for span in spans)


async def test_one_trace_goes_from_the_enqueue_across_all_attempts(
    hf: Holdfast, spans: Spans
) -> None:
    @hf.job(retry=SOON)
    async def unsteady(ctx: Context) -> None:
        if ctx.attempt < 3:
            raise ConnectionError(SECRET)

    with trace.get_tracer("app").start_as_current_span("request") as request:
        job = await unsteady.options(queue="mail", correlation_id="request-7").enqueue()
    await hf.run_worker(until_empty=True)
    (enqueue,) = spans.enqueues
    first, second, third = spans.attempts
    assert parent_id(enqueue) == request.get_span_context().span_id
    assert {trace_id(span) for span in (enqueue, first, second, third)} == {
        request.get_span_context().trace_id
    }
    assert {parent_id(span) for span in (first, second, third)} == {span_id(enqueue)}
    assert [linked(span) for span in (first, second, third)] == [
        [],
        [span_id(first)],
        [span_id(second)],
    ]
    written = (await hf.get(job.id)).trace
    flags = identity(enqueue).trace_flags
    assert written == f"00-{trace_id(enqueue):032x}-{span_id(enqueue):016x}-{flags:02x}"
    assert (enqueue.name, first.name) == ("enqueue mail", "process mail")
    assert enqueue.attributes == {
        "messaging.system": "holdfast",
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send",
        "messaging.destination.name": "mail",
        "messaging.message.id": str(job.id),
        "messaging.message.conversation_id": "request-7",
        "holdfast.job.name": "unsteady",
    }
    attributes = dict(first.attributes or {})
    assert attributes.pop("messaging.client.id")
    assert attributes == {
        "messaging.system": "holdfast",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "mail",
        "messaging.message.id": str(job.id),
        "messaging.message.conversation_id": "request-7",
        "holdfast.job.name": "unsteady",
        "holdfast.job.attempt": 1,
        "holdfast.job.max_attempts": 4,
        "holdfast.outcome": "retried",
        "error.type": "ConnectionError",
    }
    assert [span.status.status_code for span in (first, second, third)] == [
        StatusCode.ERROR,
        StatusCode.ERROR,
        StatusCode.UNSET,
    ]
    assert (third.attributes or {})["holdfast.outcome"] == "succeeded"


async def test_no_argument_result_or_error_text_gets_into_a_span(
    local_hf: Holdfast, spans: Spans
) -> None:
    @local_hf.job
    async def fail(word: str) -> None:
        raise Permanent(word)

    @local_hf.job
    async def answer(word: str) -> str:
        return word

    await fail.enqueue(SECRET)
    await answer.options(tenant="acme").enqueue(SECRET)
    await local_hf.run_worker(until_empty=True)
    assert len(spans.attempts) == 2
    shown = told([*spans.enqueues, *spans.attempts])
    assert SECRET not in shown
    assert "acme" not in shown


async def test_an_enqueue_that_fails_tells_the_type_of_its_error(
    local_hf: Holdfast, spans: Spans
) -> None:
    @local_hf.job
    async def work(word: str) -> None: ...

    with pytest.raises(BadArguments):
        await local_hf.enqueue_many([work.call("a")], connection=SECRET)
    (enqueue,) = spans.enqueues
    assert enqueue.status.description == (enqueue.attributes or {})["error.type"] == "BadArguments"
    assert enqueue.events == ()
    assert SECRET not in told([enqueue])


async def test_jobs_of_one_call_share_a_span(local_hf: Holdfast, spans: Spans) -> None:
    @local_hf.job
    async def work() -> None: ...

    await local_hf.enqueue_many([work.call() for _ in range(3)])
    await local_hf.run_worker(until_empty=True)
    (enqueue,) = spans.enqueues
    assert (enqueue.attributes or {})["messaging.batch.message_count"] == 3
    assert {parent_id(span) for span in spans.attempts} == {span_id(enqueue)}
    assert len(spans.attempts) == 3


@pytest.mark.parametrize("way", ["async", "thread"])
async def test_what_a_handler_enqueues_belongs_to_its_attempt(
    local_hf: Holdfast, spans: Spans, way: str
) -> None:
    @local_hf.job
    async def follow_up() -> None: ...

    @local_hf.job(name="async")
    async def on_the_loop() -> None:
        await follow_up.enqueue()

    @local_hf.job(name="thread")
    def in_a_thread() -> None:
        follow_up.enqueue_sync()

    await (on_the_loop if way == "async" else in_a_thread).enqueue()
    await local_hf.run_worker(until_empty=True)
    local_hf.close_sync()
    first, second = spans.enqueues
    attempt, following = spans.attempts
    assert parent_id(second) == span_id(attempt)
    assert parent_id(following) == span_id(second)
    assert trace_id(following) == trace_id(first)


async def test_a_handler_in_a_child_process_goes_on_with_the_trace(
    local_url: str, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(child_jobs.TRACED, "1")
    async with borrowed(child_jobs.hf, local_url, Seam()):
        hf = child_jobs.hf
        job = await child_jobs.tell_trace.enqueue()
        await hf.run_worker(until_empty=True, concurrency=1)
        seen = (await hf.get(job.id)).result
    attempt, following = spans.attempts
    assert seen["current"] == f"{trace_id(attempt):032x} {span_id(attempt):016x}"
    assert seen["enqueued"].startswith(f"00-{trace_id(attempt):032x}-")
    assert trace_id(following) == trace_id(attempt)


async def test_an_attempt_after_one_elsewhere_is_linked_to_the_enqueue(
    local_hf: Holdfast, spans: Spans
) -> None:
    @local_hf.job(retry=Retry.schedule([3600]))
    async def unsteady(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise ConnectionError

    job = await unsteady.enqueue()
    await local_hf.run_due()
    await local_hf.jobs.retry(job.id)
    await local_hf.run_due()  # another worker, which knows nothing of the first
    (enqueue,) = spans.enqueues
    first, second = spans.attempts
    assert linked(first) == []
    assert linked(second) == [span_id(enqueue)]


async def test_a_snooze_is_no_error_and_is_linked_to(local_hf: Holdfast, spans: Spans) -> None:
    @local_hf.job
    async def later(ctx: Context) -> None:
        if ctx.fence == 1:
            raise Snooze(0.01)

    await later.enqueue()
    await local_hf.run_worker(until_empty=True)
    first, second = spans.attempts
    assert first.status.status_code is StatusCode.UNSET
    assert (first.attributes or {})["holdfast.outcome"] == "snoozed"
    assert linked(second) == [span_id(first)]


async def test_a_lost_lease_ends_the_span_as_an_error(local_url: str, spans: Spans) -> None:
    async with Holdfast(local_url, **QUICK, lease_seconds=0.6) as hf:
        started, never = asyncio.Event(), asyncio.Event()

        @hf.job
        async def wait() -> None:
            started.set()
            await never.wait()

        await wait.enqueue()
        async with working(hf), seen_events() as seen:
            await signal(started)
            await execute(local_url, "UPDATE jobs SET fence = fence + 1")
            await seen.first("lost")
        (attempt,) = spans.attempts
        assert (attempt.attributes or {})["holdfast.outcome"] == "lost"
        assert attempt.status.status_code is StatusCode.ERROR


async def test_a_job_that_was_enqueued_without_a_trace_begins_one(
    local_hf: Holdfast, spans: Spans
) -> None:
    @local_hf.job
    async def work() -> None: ...

    with provided(None):
        job = await work.enqueue()
    assert (await local_hf.get(job.id)).trace is None
    with trace.get_tracer("app").start_as_current_span("the program around the worker"):
        await local_hf.run_worker(until_empty=True)
    (attempt,) = spans.attempts
    assert attempt.parent is None


async def test_a_trace_that_is_no_trace_is_passed_over(
    local_hf: Holdfast, local_url: str, spans: Spans
) -> None:
    @local_hf.job
    async def work() -> None: ...

    await work.enqueue()
    await execute(local_url, "UPDATE jobs SET trace = 'nonsense'")
    assert (await local_hf.run_worker(until_empty=True)).succeeded == 1
    assert spans.attempts[0].parent is None


async def test_what_is_not_sampled_stays_so_in_its_attempts(local_hf: Holdfast) -> None:
    @local_hf.job
    async def work() -> None: ...

    sampler = ParentBased(ALWAYS_OFF)
    with provided(TracerProvider(sampler=sampler, shutdown_on_exit=False)):
        job = await work.enqueue()
    written = (await local_hf.get(job.id)).trace
    assert written is not None
    assert not int(written[-2:], 16) & TraceFlags.SAMPLED


def test_a_worker_remembers_a_bounded_number_of_attempts(spans: Spans) -> None:
    attempts = Attempts("worker")
    jobs = [claimed(attempt=1) for _ in range(EARLIER_MAX + 1)]

    def perform(job: Claimed) -> None:
        span = attempts.start(job)
        assert span is not None
        settlement = Settlement(job_id=job.id, fence=1, state=State.QUEUED)
        attempts.end(span, job, settlement, "retried")

    def again(job: Claimed) -> list[int]:
        contextvars.copy_context().run(perform, msgspec.structs.replace(job, attempt=2))
        return linked(spans.attempts[-1])

    for job in jobs:
        contextvars.copy_context().run(perform, job)
    assert again(jobs[0]) == []
    assert again(jobs[-1]) == [span_id(spans.attempts[EARLIER_MAX])]


def test_without_a_provider_nothing_is_imported_and_nothing_written(local_url: str) -> None:
    script = f"""
        import asyncio, sys
        from holdfast import Holdfast

        hf = Holdfast({local_url!r})

        @hf.job
        async def work() -> None: ...

        async def main():
            async with hf:
                job = await work.enqueue()
                await hf.run_worker(until_empty=True)
                return await hf.get(job.id)

        job = asyncio.run(main())
        assert job.state == "succeeded" and job.trace is None
        print([name for name in sys.modules if name.startswith(("opentelemetry", "prometheus"))])
        """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS_MAX,
    )
    assert (ran.stdout, ran.returncode) == ("[]\n", 0), ran.stderr


async def test_a_request_to_the_api_continues_the_trace_of_its_caller(
    hf: Holdfast, spans: Spans
) -> None:
    @hf.job
    async def nothing() -> None: ...

    caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    headers = {"traceparent": caller, "tracestate": "vendor=1"}
    async with served(hf) as client:
        made = await client.post("/v1/jobs", json={"name": "nothing"}, headers=headers)
    (request,), (enqueue,) = spans.kind(SpanKind.SERVER), spans.enqueues
    assert f"{trace_id(request):032x}" in caller
    assert f"{parent_id(request):016x}" in caller
    assert parent_id(enqueue) == span_id(request)
    assert f"{span_id(enqueue):016x}" in made.json()["trace"]
    assert f"{span_id(request):016x}" in made.headers["traceparent"]
    assert identity(enqueue).trace_state.get("vendor") == "1"
    assert request.name == "POST /v1/jobs"


async def test_a_request_has_a_span_of_its_own_without_an_instrumentation(spans: Spans) -> None:
    caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    for status, code in ((404, StatusCode.UNSET), (500, StatusCode.ERROR)):
        serving = Serving("GET", caller, None)
        serving.end("/v1/jobs/{job_id}", status)
        span = spans.kind(SpanKind.SERVER)[-1]
        assert span.name == "GET /v1/jobs/{job_id}"
        assert f"{parent_id(span):016x}" in caller
        assert span.status.status_code is code
        context.attach(context.Context())
