"""What every request gets: a correlation ID, its trace, and safe headers for browsers."""

from __future__ import annotations

import re
from random import getrandbits
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.domain.scope import all_tenants
from holdfast.observability.tracing import Serving

CORRELATION_HEADER: Final = "x-correlation-id"
TRACE_HEADER: Final = "traceparent"
_CORRELATION_ID: Final = re.compile(r"[A-Za-z0-9._:/+=-]{1,100}")
_TRACE: Final = re.compile(r"[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")

# As bytes, because every request passes here.
_CORRELATION: Final = CORRELATION_HEADER.encode()
_TRACEPARENT: Final = TRACE_HEADER.encode()
_CAREFUL: Final = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))


class Envelope:
    """ASGI middleware. It adds `correlation_id` and `trace` to the request's state.

    An invalid correlation ID or trace is ignored: no job should fail because of it. The response
    headers show what is used instead.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        given = dict(scope["headers"])
        correlation_id = given.get(_CORRELATION, b"").decode("latin-1")
        if not _CORRELATION_ID.fullmatch(correlation_id):
            correlation_id = f"{getrandbits(128):032x}"
        trace = given.get(_TRACEPARENT, b"").decode("latin-1")
        trace_state = given.get(b"tracestate")
        serving = Serving(
            scope["method"],
            trace if _TRACE.fullmatch(trace) else None,
            None if trace_state is None else trace_state.decode("latin-1"),
        )
        state: dict[str, Any] = scope.setdefault("state", {})
        state["correlation_id"] = correlation_id
        state["trace"] = serving.trace
        status = 500

        async def send_on(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message["headers"], (_CORRELATION, correlation_id.encode())]
                if serving.trace is not None:
                    headers.append((_TRACEPARENT, serving.trace.encode()))
                names = {name for name, _ in headers}
                headers += [each for each in _CAREFUL if each[0] not in names]
                message["headers"] = headers
            await send(message)

        try:
            with all_tenants():  # until the gate knows the caller
                return await self._app(scope, receive, send_on)
        finally:
            serving.end(getattr(scope.get("route"), "path_format", None), status)
