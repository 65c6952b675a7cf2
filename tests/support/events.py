"""Read server-sent events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx


class Sent(NamedTuple):
    event: str
    id: str
    data: Any


class Stream:
    """An open stream. `next` skips comments; `comment` expects one before the next event."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()

    async def next(self) -> Sent:
        fields: dict[str, str] = {}
        async for line in self._lines:
            name, _, value = line.partition(": ")
            if not line and "event" in fields:
                return Sent(fields["event"], fields.get("id", ""), json.loads(fields["data"]))
            fields = fields | {name: value} if line else {}
        raise EOFError("the stream has ended")

    async def paragraph(self) -> list[str]:
        """The next lines up to an empty one, whatever they are."""
        found: list[str] = []
        async for line in self._lines:
            if not line:
                return found
            found.append(line)
        raise EOFError("the stream has ended")

    async def comment(self) -> str:
        async for line in self._lines:
            assert not line.startswith("event:"), line
            if line.startswith(":"):
                return line.removeprefix(":").strip()
        raise EOFError("the stream has ended")

    async def rest(self) -> list[Sent]:
        """All events up to the end of the stream."""
        found = []
        try:
            while True:
                found.append(await self.next())
        except EOFError:
            return found

    async def until(self, event: str, **data: Any) -> Sent:
        """The next event of this name whose data has these members."""
        while True:
            sent = await self.next()
            if sent.event == event and data.items() <= sent.data.items():
                return sent


@asynccontextmanager
async def streaming(
    client: httpx.AsyncClient, path: str, last_event_id: str | None = None, **options: Any
) -> AsyncIterator[Stream]:
    headers = {**options.pop("headers", {})}
    if last_event_id is not None:
        headers["last-event-id"] = last_event_id
    async with client.stream("GET", path, headers=headers, **options) as response:
        assert response.status_code == 200, await response.aread()
        yield Stream(response)
