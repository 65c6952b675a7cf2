"""OpenTelemetry traces, if the application has set up a provider.

One trace covers the enqueue and all attempts: a job carries the `traceparent` of the span that
enqueued it, each attempt is a child of that span, and a later attempt links to the one before.
Attributes follow the messaging conventions. Arguments, results and error texts stay out of spans.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from holdfast.domain.job import Claimed, NewJob, Settlement
from holdfast.domain.states import State

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanContext, Tracer

EARLIER_MAX: Final = 10_000  # attempts that a worker remembers for links

_SYSTEM: Final = "holdfast"
_AGAIN: Final = frozenset({"retried", "snoozed", "released", "handed_back"})
_known: tuple[object, Tracer] | None = None
_callers: ContextVar[str | None] = ContextVar("callers", default=None)


class Enqueuing:
    """The span of an enqueue. Its jobs carry `trace`: without a span, that of the caller."""

    def __init__(self, span: Span | None) -> None:
        self._span = span
        self.trace = _callers.get() if span is None else traceparent(span)

    def describe(self, jobs: Sequence[NewJob]) -> None:
        """Describe the jobs; one span stands for all jobs of a call."""
        if self._span is None or not jobs:
            return
        queues = {job.queue for job in jobs}
        if len(queues) == 1:
            queue = min(queues)
            self._span.update_name(f"enqueue {queue}")
            self._span.set_attribute("messaging.destination.name", queue)
        if len(jobs) > 1:
            self._span.set_attribute("messaging.batch.message_count", len(jobs))
            return
        (job,) = jobs
        self._span.set_attribute("messaging.message.id", str(job.id))
        self._span.set_attribute("holdfast.job.name", job.name)
        if job.correlation_id is not None:
            self._span.set_attribute("messaging.message.conversation_id", job.correlation_id)


def enqueuing() -> AbstractContextManager[Enqueuing]:
    tracer = _tracer()
    return nullcontext(Enqueuing(None)) if tracer is None else _traced(tracer)


@contextmanager
def _traced(tracer: Tracer) -> Iterator[Enqueuing]:
    from opentelemetry.trace import SpanKind

    with tracer.start_as_current_span(
        "enqueue",
        kind=SpanKind.PRODUCER,
        attributes={
            "messaging.system": _SYSTEM,
            "messaging.operation.name": "enqueue",
            "messaging.operation.type": "send",
        },
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield Enqueuing(span)
        except BaseException as error:
            _set_error(span, type(error).__name__)
            raise


class Serving:
    """A request to the HTTP API. What it enqueues belongs to the trace of its caller.

    If an instrumentation of the web framework has begun a span for it, that one is used.
    """

    def __init__(self, method: str, trace: str | None, state: str | None) -> None:
        self._method = method
        self._span: Span | None = None
        self.trace = trace
        tracer = _tracer()
        if tracer is None:
            _callers.set(trace)
            return
        from opentelemetry import context
        from opentelemetry import trace as api

        begun = api.get_current_span()
        if begun.get_span_context().is_valid:
            self.trace = traceparent(begun)
            return
        parent = _context(trace, state)
        self._span = tracer.start_span(
            method,
            parent,
            kind=api.SpanKind.SERVER,
            attributes={"http.request.method": method},
            record_exception=False,
            set_status_on_exception=False,
        )
        self.trace = traceparent(self._span)
        context.attach(api.set_span_in_context(self._span, parent))

    def end(self, route: str | None, status: int) -> None:
        """`route` is the path's template: paths contain ids, and there are too many of them."""
        if self._span is None:
            return
        if route is not None:
            self._span.update_name(f"{self._method} {route}")
            self._span.set_attribute("http.route", route)
        self._span.set_attribute("http.response.status_code", status)
        if status >= 500:
            _set_error(self._span, str(status))
        self._span.end()


def is_wanted() -> bool:
    """Whether the application has set up a provider."""
    return _tracer() is not None


class Attempts:
    def __init__(self, worker_id: str) -> None:
        self._worker_id = worker_id
        self._earlier: dict[UUID, SpanContext] = {}

    def start(self, job: Claimed) -> Span | None:
        """Start the span of an attempt, and make it this task's current span."""
        if (tracer := _tracer()) is None:
            return None
        from opentelemetry import context, trace

        parent = _context(job.trace)
        span = tracer.start_span(
            f"process {job.queue}",
            parent,
            kind=trace.SpanKind.CONSUMER,
            links=[trace.Link(earlier) for earlier in self._before(job, parent)],
            attributes={
                "messaging.system": _SYSTEM,
                "messaging.operation.name": "process",
                "messaging.operation.type": "process",
                "messaging.destination.name": job.queue,
                "messaging.message.id": str(job.id),
                "messaging.message.conversation_id": job.correlation_id or str(job.id),
                "messaging.client.id": self._worker_id,
                "holdfast.job.name": job.name,
                "holdfast.job.attempt": job.attempt,
                "holdfast.job.max_attempts": job.max_attempts,
            },
            record_exception=False,
            set_status_on_exception=False,
        )
        context.attach(trace.set_span_in_context(span, parent))
        return span

    def end(self, span: Span, job: Claimed, settlement: Settlement, outcome: str) -> None:
        span.set_attribute("holdfast.outcome", outcome)
        failed = outcome == "retried" or settlement.state in (State.FAILED, State.DEAD)
        if failed and settlement.error_code is not None:
            _set_error(span, settlement.error_code)
        if outcome in _AGAIN:
            if len(self._earlier) >= EARLIER_MAX:
                del self._earlier[next(iter(self._earlier))]
            self._earlier[job.id] = span.get_span_context()
        span.end()

    def lose(self, span: Span, canceled: bool) -> None:
        span.set_attribute("holdfast.outcome", "canceled" if canceled else "lost")
        if not canceled:
            _set_error(span, "LEASE_LOST")
        span.end()

    def _before(self, job: Claimed, parent: Any) -> list[SpanContext]:
        """The previous attempt, or the enqueue if another worker ran that attempt."""
        from opentelemetry.trace import get_current_span

        if (earlier := self._earlier.pop(job.id, None)) is not None:
            return [earlier]
        if job.attempt == 1 and not job.snoozes and not job.releases:
            return []
        enqueued = get_current_span(parent).get_span_context()
        return [enqueued] if enqueued.is_valid else []


def traceparent(span: Span) -> str | None:
    """The span in the format of the `traceparent` header."""
    from opentelemetry.trace import set_span_in_context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier, set_span_in_context(span))
    return carrier.get("traceparent")


def continue_trace(trace: str | None) -> None:
    """Make what this task or thread does from now on part of the trace."""
    if trace is not None and _tracer() is not None:
        from opentelemetry import context

        context.attach(_context(trace))


def _context(trace: str | None, state: str | None = None) -> Any:
    """The trace as a context; without one, an empty context that starts a new trace."""
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {} if trace is None else {"traceparent": trace, "tracestate": state or ""}
    return TraceContextTextMapPropagator().extract(carrier, Context())


def _tracer() -> Tracer | None:
    """None without a provider. Whoever sets one up imports OpenTelemetry first."""
    global _known
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        return None
    provider = api.get_tracer_provider()
    if _known is not None and _known[0] is provider:
        return _known[1]
    if isinstance(provider, api.ProxyTracerProvider):
        return None
    _known = (provider, provider.get_tracer("holdfast"))
    return _known[1]


def _set_error(span: Span, kind: str) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR, kind))
