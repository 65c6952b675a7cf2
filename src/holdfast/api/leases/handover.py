"""The response to a request for leases. It knows whether the client was there to receive it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from holdfast.api.answers import answer
from holdfast.api.leases.line import Granted
from holdfast.domain.job import Lease

PIECE_BYTES: Final = 64 * 1024
_TURNS: Final = 3  # of the event loop, enough to notice a closed connection

Wait = Callable[[asyncio.Future[None]], Awaitable[Sequence[Granted]]]


class Handover(Response):
    """Waits for leases and returns them, or 204 if there are none.

    The last piece of the response is written only if the client is still connected. Otherwise the
    client can't have received the whole response, so the jobs are released, except those that an
    earlier response may have brought to it.
    """

    def __init__(
        self,
        wait: Wait,
        check: Callable[[], Awaitable[None]],
        show: Callable[[Sequence[Granted]], Any],
        release: Callable[[Sequence[Lease]], None],
    ) -> None:
        super().__init__(status_code=204)
        self._wait = wait
        self._check = check
        self._show = show
        self._release = release

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.create_task(_disconnected(receive))
        granted: Sequence[Granted] = ()
        try:
            granted = await self._wait(gone)
            if not granted:
                await super().__call__(scope, receive, send)
                return
            await self._check()
            if await self._send(answer(self._show(granted)), send, gone):
                granted = ()
        finally:
            gone.cancel()
            self._release([each.job.lease for each in granted if each.is_new])

    async def _send(self, response: Response, send: Send, gone: asyncio.Future[None]) -> bool:
        """Return whether the whole response was written while the client was connected."""
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        if gone.done():
            return False
        status, headers = response.status_code, response.raw_headers
        await send({"type": "http.response.start", "status": status, "headers": headers})
        body = bytes(response.body)
        *first, last = (
            body[start : start + PIECE_BYTES] for start in range(0, len(body), PIECE_BYTES)
        )
        # The empty piece waits until there is room for the last one, which is written at once.
        for piece in (*first, b""):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            if gone.done():
                return False
        await send({"type": "http.response.body", "body": last})
        return True


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
