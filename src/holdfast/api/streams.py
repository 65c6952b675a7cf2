"""Long responses: server-sent events, and work that ends when the client disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager
from typing import Any, Final, TypeVar

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

T = TypeVar("T")
Write = Callable[[bytes], Awaitable[None]]  # returns when the client is ready for more

EVENT_STREAM: Final = "text/event-stream"
_HEADERS: Final = {
    "cache-control": "no-store",
    "x-accel-buffering": "no",  # otherwise nginx buffers events
}


class EventStream(Response):
    """Sends what `tell` writes until it returns or the client disconnects, within `during`."""

    media_type = EVENT_STREAM

    def __init__(
        self,
        tell: Callable[[Write], Coroutine[Any, Any, None]],
        during: AbstractContextManager[None],
    ) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self._tell = tell
        self._during = during

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._during:
            await self._stream(receive, send)

    async def _stream(self, receive: Receive, send: Send) -> None:
        async def write(data: bytes) -> None:
            await send({"type": "http.response.body", "body": data, "more_body": True})

        async def tell_all() -> None:
            await self._tell(write)
            await send({"type": "http.response.body", "body": b""})

        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        try:
            await while_connected(receive, tell_all())
        except ClientDisconnect:
            return


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Do the work, but cancel it and raise ClientDisconnect if the client disconnects. The body of
    the request must have been read, unless there is none."""
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(_until_gone(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
