"""Two worlds for one tenant: in one of them another tenant does the same at the same time."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final, NamedTuple
from uuid import UUID, uuid4

import httpx

from holdfast import Holdfast
from holdfast.api import make_api
from holdfast.domain.keys import SCOPES, NewKey
from holdfast.domain.scope import scoped_tenant
from tests.support.processes import turn
from tests.support.running import QUICK
from tests.support.seams import NotingSeam

OWN: Final = "acme"
OTHER: Final = "o'th\\er"  # its name is a literal of SQL, too
REQUEST_SECONDS: Final = 0.1
_SAME_FOR_BOTH: Final = ("/v1/jobs", "/v1/jobs/batch", "/v1/leases", "/v1/bulk")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)")
_AGO: Final = re.compile(r"TIME \([^)]*\)")
_VERSION: Final = re.compile(r"(?m)^id: \S+$")
_LITERAL: Final = re.compile(r"'[^']*'|\b\d+\b")
_OWNER: Final = re.compile(r"/[0-9a-f]{32}\b")


class PairedSeam(NotingSeam):
    """Its clocks move with the requests of the tenant, and each scope has its own randomness. So
    the tenant gets the same ids in any world and, where this clock decides, the same times."""

    def __init__(self) -> None:
        super().__init__()
        self.random = RandomByTenant()
        self.seconds = 1000.0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds


class RandomByTenant(Random):
    def __init__(self) -> None:
        self._sources: dict[str | None, Random] = {}
        super().__init__()

    def random(self) -> float:
        return self._source.random()

    def getrandbits(self, bits: int, /) -> int:
        return self._source.getrandbits(bits)

    @property
    def _source(self) -> Random:
        tenant = scoped_tenant()
        return self._sources.setdefault(tenant, Random(tenant))


class Answer(NamedTuple):
    """All that the tenant gets to see."""

    asked: str
    status: int
    headers: Sequence[tuple[str, str]]
    body: str


@dataclass
class PairedWorld:
    hf: Holdfast
    seam: PairedSeam
    client: httpx.AsyncClient
    own: NewKey
    other: NewKey | None  # the world has no other tenant without it
    database_stamps: bool
    answers: list[Answer] = field(default_factory=list)

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """Ask as the tenant; note the answer and return it. If this changes anything, the other
        tenant asks the same at the same time."""
        if self.other is None or method == "GET":
            return await self.ask_alone(method, path, body, **headers)
        theirs, answer = await asyncio.gather(
            self._send(self.other, method, path, body, headers),
            self.ask_alone(method, path, body, **headers),
        )
        if path in _SAME_FOR_BOTH:
            assert theirs.status_code == self.answers[-1].status, theirs.text
        return answer

    async def ask_alone(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        self.seam.seconds += REQUEST_SECONDS
        answer = await self._send(self.own, method, path, body, headers)
        self.answers.append(self._shown(f"{method} {path}", answer))
        return answer.json() if answer.headers.get("content-type") == "application/json" else None

    async def statements_of(self, method: str, path: str, body: Any = None) -> list[str]:
        """The statements that a request of the tenant alone takes, without their values."""
        await turn()
        self.seam.statements.clear()
        await self._send(self.own, method, path, body, {"idempotency-key": str(uuid4())})
        await turn()
        return [_LITERAL.sub("?", each) for each in self.seam.statements]

    async def as_other(self, method: str, path: str, body: Any = None) -> Any:
        assert self.other is not None
        answer = await self._send(self.other, method, path, body, {})
        assert answer.is_success, answer.text
        return answer.json()

    async def _send(
        self, key: NewKey, method: str, path: str, body: Any, headers: dict[str, str]
    ) -> httpx.Response:
        known = {"authorization": f"Bearer {key.key}", "x-correlation-id": "c-1"}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.client.request(method, path, json=body, headers=known | named)

    def _shown(self, asked: str, answer: httpx.Response) -> Answer:
        """Byte for byte, except: the key's id, which is random, and a digest of it in the names of
        workers; and where the database's clock stamps rows, their times and digests of these."""
        text = _OWNER.sub("/OWNER", answer.text.replace(self.own.id, "KEY"))
        if self.database_stamps:
            text = _VERSION.sub("id: VERSION", _AGO.sub("TIME", _TIME.sub("TIME", text)))
        headers = {**answer.headers}
        if "content-length" in headers:  # of a text whose times have more or fewer digits
            headers["content-length"] = str(len(text))
        return Answer(asked, answer.status_code, sorted(headers.items()), text)


@asynccontextmanager
async def paired_world(url: str, operators_url: str, *, shared: bool) -> AsyncIterator[PairedWorld]:
    """A service with no background tasks but those that requests need."""
    seam = PairedSeam()
    hf = Holdfast(url, seam=seam, **QUICK)

    @hf.job
    async def add(a: int, text: str = "") -> Any:
        return a

    api = make_api(hf, upkeep=False)
    service = api.state.service
    async with (
        hf,
        Holdfast(operators_url, **QUICK) as operators,
        service.leases.running(),
        service.watch.running(),
        httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://test") as client,
    ):
        keys = operators.keys
        own = await keys.create("one key", scopes=SCOPES[:-1], tenant=OWN)
        other = await keys.create("one key", scopes=SCOPES[:-1], tenant=OTHER) if shared else None
        stamps = not url.startswith("sqlite")
        yield PairedWorld(hf, seam, client, own, other, stamps)


async def run_bulk_changes(hf: Holdfast) -> None:
    """What a server does in the background."""
    runs = hf._bulk_runs
    for lease in await runs.claim("runner", 10):
        while (await runs.step(lease)).wait_seconds is not None:
            pass


def job_id(number: int) -> UUID:
    return UUID(int=0x0190_0000_0000_7000_8000_0000_0000_0000 + number)
