"""Count requests, for `/metrics`, and log them at debug level."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from logging import DEBUG
from time import perf_counter
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.observability import logs
from holdfast.observability.metrics import HTTP_IN_FLIGHT, HTTP_STREAMS, OTHER, Metrics

METHODS: Final = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
FAILED: Final = 500
STREAM: Final = b"text/event-stream"


class Traffic:
    """The requests and streams in progress."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self.in_flight = 0
        self.streams = 0

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Count from the start: sooner or later, someone reads the metrics of a server."""
        self.metrics.counting = True
        with self.metrics.measuring(self._measure):
            yield

    def _measure(self) -> Mapping[str, float]:
        return {HTTP_IN_FLIGHT.name: self.in_flight, HTTP_STREAMS.name: self.streams}


class Counted:
    """ASGI middleware. Requests are counted by route template, so there are few series."""

    def __init__(self, app: ASGIApp, traffic: Traffic) -> None:
        self._app = app
        self._traffic = traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        traffic = self._traffic
        traffic.in_flight += 1
        began = perf_counter()
        answered = False
        streams = 0

        async def send_on(message: Message) -> None:
            nonlocal answered, streams
            if message["type"] == "http.response.start":
                answered = True
                self._count(scope, message["status"], perf_counter() - began)
                if dict(message["headers"]).get(b"content-type", b"").startswith(STREAM):
                    streams = 1
                    traffic.streams += 1
            await send(message)

        try:
            await self._app(scope, receive, send_on)
        except Exception:
            if not answered:
                self._count(scope, FAILED, perf_counter() - began)
            raise
        finally:
            traffic.in_flight -= 1
            traffic.streams -= streams

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        method = scope["method"] if scope["method"] in METHODS else OTHER
        route = getattr(scope.get("route"), "path", OTHER)
        self._traffic.metrics.answered(method, route, status, seconds)
        if logs.enabled(DEBUG):
            logs.event(
                DEBUG,
                "request",
                f"{scope['method']} {scope['path']} {status}",
                duration_ms=round(seconds * 1000, 2),
                correlation_id=scope.get("state", {}).get("correlation_id"),
            )
