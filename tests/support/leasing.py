"""An app with remote jobs, a worker that leases them over HTTP, and a store that can be watched."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

import httpx
import msgspec

from holdfast import Breaker, Holdfast, Retry
from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.job import Claimed, Lease
from holdfast.job_function import JobFunction
from holdfast.stores.protocol import Claim, Store
from tests.support.around import Around
from tests.support.running import QUICK

LeaseAnswer = dict[str, Any]


class WatchedStore(Around):
    def __init__(self, store: Store, app: WatchedApp) -> None:
        super().__init__(store)
        self._app = app

    async def claim(self, request: Claim) -> Sequence[Claimed]:
        jobs: Sequence[Claimed] = await self.store.claim(request)
        self._app.claims.append((request.limit, len(jobs)))
        if jobs:
            await self._app.after_claims()
        return jobs

    async def assign(self, owners: Mapping[Lease, str]) -> Sequence[Lease]:
        lost: Sequence[Lease] = await self.store.assign(owners)
        await self._app.after_assigns()
        return lost


class WatchedApp(Holdfast):
    """Counts the claims, each with how many jobs it asked for and got. What is between the database
    and the answer of a verb is `after_claims`, if there are jobs, and `after_assigns`."""

    def __init__(self, url: str, **settings: Any) -> None:
        self.claims: list[tuple[int, int]] = []
        self.after_claims: Callable[[], Awaitable[None]] = nothing
        self.after_assigns: Callable[[], Awaitable[None]] = nothing
        super().__init__(url, **{**QUICK, **settings})

    def _make_store(self) -> Store:
        return cast(Store, WatchedStore(super()._make_store(), self))


async def nothing() -> None: ...


async def lose_answer() -> None:
    """The database has done it, but its answer is lost."""
    raise StoreUnavailable("the answer was lost")


class Client:
    """A client that is one connection: it asks, and may be gone before the answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def asking(cls, url: httpx.URL, **request: Any) -> Client:
        assert url.port is not None
        client = cls(*await asyncio.open_connection(url.host, url.port))
        body = msgspec.json.encode(request)
        head = f"host: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
        client._writer.write(f"POST /v1/leases HTTP/1.1\r\n{head}\r\n\r\n".encode() + body)
        return client

    async def status(self) -> int:
        return int((await self._reader.readline()).split()[1])

    def leave(self) -> None:
        self._writer.transport.abort()


def make_app(url: str, **settings: Any) -> WatchedApp:
    hf = WatchedApp(url, **settings)

    @hf.job(
        executor="remote",
        queue="images",
        retry=Retry.schedule([5.0, 5.0]),
        permanent=["NO_SUCH_IMAGE"],
        timeout_seconds=60,
        aliases=["shrink"],
    )
    def resize(image: Any) -> Any:
        """Make an image smaller."""

    @hf.job(executor="remote", breaker=Breaker("gateway", failures=2))
    async def pay(amount: int) -> int:
        raise NotImplementedError

    @hf.job
    async def local(number: int) -> int:
        return number

    return hf


def job_of(hf: Holdfast, name: str = "resize") -> JobFunction[..., Any]:
    return hf._functions[name]


async def take(client: httpx.AsyncClient, **request: Any) -> list[LeaseAnswer]:
    """Lease jobs; nothing if there are none."""
    answer = await client.post("/v1/leases", json=request)
    if answer.status_code == 204:
        return []
    assert answer.status_code == 200, answer.text
    leases: list[LeaseAnswer] = answer.json()["leases"]
    return leases


async def end(client: httpx.AsyncClient, lease: LeaseAnswer, **outcome: Any) -> httpx.Response:
    return await client.put(f"/v1/leases/{lease['lease_id']}/outcome", json=outcome)


async def renew(client: httpx.AsyncClient, *leases: LeaseAnswer, **more: Any) -> list[LeaseAnswer]:
    wanted = [{"lease_id": each["lease_id"]} for each in leases]
    answer = await client.post("/v1/leases/renew", json={"leases": wanted, **more})
    assert answer.status_code == 200, answer.text
    found: list[LeaseAnswer] = answer.json()["leases"]
    return found
