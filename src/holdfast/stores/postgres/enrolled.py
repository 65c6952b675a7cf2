"""The store's verbs on a caller's connection, whatever its driver.

Drivers differ in the types they accept and return, but all accept text. So values travel as text,
and the statement casts them.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

import msgspec

from holdfast.domain.errors import BadArguments, ConfigurationError
from holdfast.domain.job import DEFAULT_TENANT, Job, NewJob, Receipt, Settlement, cancel_reason
from holdfast.domain.retention import Retention
from holdfast.domain.scope import scoped_tenant
from holdfast.domain.times import FIRST, LAST
from holdfast.stores.postgres import jobs, queries
from holdfast.stores.postgres.enqueue import Enqueuer, array_literal
from holdfast.stores.postgres.failures import NO_PRIVILEGE, sqlstate, translate
from holdfast.stores.postgres.rows import fetch_on
from holdfast.stores.postgres.settle import Settler
from holdfast.stores.protocol import Canceled
from holdfast.transactions.drivers import Driver, PostgresDriver, speaks_postgres
from holdfast.transactions.drivers.failures import DriverError, is_of_driver, unwrapped

_PARAMETER = re.compile(r"\$(\d+)(?:::(\w+(?:\[\])?))?")
_TIMES = (
    "lease_expires_at", "run_at", "expires_at", "created_at", "started_at", "finished_at",
)  # fmt: skip
_GUESSES: dict[type, str] = {UUID: "uuid", int: "bigint", float: "float8", datetime: "timestamptz"}
# Sessions of callers, and whether their role can enqueue only by functions.
_must_call: WeakKeyDictionary[object, bool] = WeakKeyDictionary()


class PostgresEnrolled:
    def __init__(
        self,
        driver: Driver,
        enqueuer: ForeignEnqueuer,
        settler: Settler,
        retention: Retention,
        address: str,
    ) -> None:
        self._driver = driver
        self._enqueuer = enqueuer
        self._settler = settler
        self._retention = retention
        self._address = address
        self._hashes: dict[UUID, Sequence[bytes]] = {}  # of what was enqueued, by the ids it has

    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Receipt]:
        with self._connected() as connection:
            receipts = await self._enqueuer.enqueue(connection, jobs)
        found = zip(receipts, jobs, strict=True)
        self._hashes |= {receipt.id: job.hashes for receipt, job in found if not receipt.created}
        return receipts

    async def get(self, job_id: UUID) -> Job | None:
        with self._connected() as connection:
            return await self._enqueuer.get(connection, job_id, self._hashes.get(job_id, ()))

    async def settle(self, settlement: Settlement) -> bool:
        with self._connected() as connection:
            return await self._settler.settle_in_transaction(connection, settlement)

    async def cancel(
        self, job_ids: Sequence[UUID], *, by: str | None = None, because: str | None = None
    ) -> Sequence[Canceled]:
        reason = cancel_reason(by, because)
        return await jobs.cancel(self._fetch, self._retention, job_ids, False, reason)

    async def retry(self, job_id: UUID) -> bool:
        return await jobs.retry(self._fetch, job_id)

    async def requeue(
        self, job_id: UUID, new_id: UUID, *, arguments: bytes | None = None, once: bool = False
    ) -> bool:
        return await jobs.requeue(self._fetch, self._retention, job_id, new_id, arguments, once)

    async def requeued(self, job_ids: Sequence[UUID]) -> Mapping[UUID, UUID]:
        return await queries.requeued(self._fetch, job_ids)

    async def wake(self, queue: str) -> None:
        await self._fetch("notify", payload=f"q:{queue}")

    async def _fetch(self, name: str, /, **values: object) -> Sequence[Any]:
        with self._connected() as connection:
            return await fetch_on(connection, name, **values)

    @contextmanager
    def _connected(self) -> Iterator[TextConnection]:
        if not speaks_postgres(self._driver):
            raise BadArguments(
                f"the connection is to {self._driver.dialect}, but the jobs are in PostgreSQL at"
                f" {self._address}"
            )
        try:
            yield TextConnection(self._driver)
        except DriverError as error:
            raise translate(error, self._address) from error.error


class ForeignEnqueuer(Enqueuer):
    """Uses only statements that take arrays, which text can express. If the caller's role may not
    insert jobs, functions of the schema's owner do it."""

    async def enqueue(self, connection: TextConnection, jobs: Sequence[NewJob]) -> list[Receipt]:
        if connection.session not in _must_call:
            _must_call[connection.session] = await self._ask(connection)
        try:
            return await super().enqueue(connection, jobs)
        except DriverError as error:
            if sqlstate(error) == NO_PRIVILEGE:
                # The session may have another role by now.
                _must_call.pop(connection.session, None)
            raise

    async def get(
        self, connection: TextConnection, job_id: UUID, hashes: Sequence[bytes]
    ) -> Job | None:
        """Return the job. A caller that can only call functions has to know what it contains."""
        called = _must_call.get(connection.session)
        name = "call_keyed_job" if called else "get_json"
        rows = await fetch_on(
            connection, name, job_id=job_id, tenant=scoped_tenant(), hashes=list(hashes)
        )
        if not rows or rows[0]["job"] is None:
            return None
        values = msgspec.json.decode(rows[0]["job"])
        values |= {name: _time(values[name]) for name in _TIMES}
        values["tenant"] = values["tenant"] or DEFAULT_TENANT
        return msgspec.convert(values, Job)

    async def _ask(self, connection: TextConnection) -> bool:
        (found,) = await fetch_on(connection, "may_enqueue")
        if found["may_insert"] or found["may_call"]:
            return not found["may_insert"]
        raise ConfigurationError(
            f"the connection's role {found['role']} may not enqueue jobs; to allow it, run:"
            f" holdfast roles allow-enqueue {found['role']}"
        )

    async def _fetch(self, connection: Any, name: str, /, **values: object) -> Sequence[Any]:
        called = _must_call[connection.session]
        return await fetch_on(connection, f"call_{name}" if called else name, **values)

    async def _insert(self, connection: Any, jobs: Sequence[NewJob]) -> None:
        await self._insert_many(connection, jobs)

    async def _copy(self, connection: Any, jobs: Sequence[NewJob]) -> None:
        await self._insert_many(connection, jobs)


class TextConnection:
    """The methods that the engine calls on its own connections, through any driver."""

    def __init__(self, driver: PostgresDriver) -> None:
        self._driver = driver

    @property
    def session(self) -> object:
        return self._driver.session

    async def fetch(self, sql: str, *values: object) -> Sequence[Mapping[str, Any]]:
        types = _types(sql, tuple(map(_guess, values)))
        texts = [_text(value, kind) for value, kind in zip(values, types, strict=True)]
        return await self._fetch(_with_casts(sql, types), texts)

    async def fetchval(self, sql: str, *values: object) -> Any:
        # Don't take a missing row for NULL, which means that all was written.
        (row,) = await self.fetch(sql, *values)
        return next(iter(row.values()))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """A savepoint: an error inside leaves the caller's transaction unchanged."""
        await self._fetch("SAVEPOINT holdfast", [])
        try:
            yield
        except Exception:
            await self._fetch("ROLLBACK TO SAVEPOINT holdfast", [])
            raise
        await self._fetch("RELEASE SAVEPOINT holdfast", [])

    async def _fetch(self, sql: str, values: Sequence[str | None]) -> Sequence[Mapping[str, Any]]:
        try:
            rows = await self._driver.fetch(sql, values)
        except Exception as error:
            inner = unwrapped(error)
            if not is_of_driver(inner):
                raise
            raise DriverError(inner) from error
        return [_plain(row) for row in rows]


def _time(text: str | None) -> datetime | None:
    """Read a time from JSON. One that Python can't represent becomes the first or the last one."""
    if text is None:
        return None
    try:
        return min(max(msgspec.convert(text, datetime), FIRST), LAST)
    except msgspec.ValidationError:
        return FIRST if text.startswith("-") or text.endswith("BC") else LAST


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Undo what some drivers turn these types into."""
    values = dict(row)
    for name, value in values.items():
        if isinstance(value, memoryview):
            values[name] = bytes(value)
        elif name in ("id", "job_id", "new_id"):
            values[name] = UUID(str(value))
    return values


@lru_cache(maxsize=256)
def _types(sql: str, guesses: tuple[str, ...]) -> tuple[str, ...]:
    """The type of each parameter: as the statement casts it, or else as its value suggests."""
    cast_types = {int(number): kind for number, kind in _PARAMETER.findall(sql) if kind}
    return tuple(cast_types.get(number, guess) for number, guess in enumerate(guesses, 1))


@lru_cache(maxsize=256)
def _with_casts(sql: str, types: tuple[str, ...]) -> str:
    return _PARAMETER.sub(
        lambda match: f"CAST(CAST(${match[1]} AS text) AS {types[int(match[1]) - 1]})", sql
    )


def _guess(value: object) -> str:
    kind = UUID if isinstance(value, UUID) else type(value)  # asyncpg's ids are of a subclass
    return _GUESSES.get(kind, "text")


def _text(value: object, kind: str) -> str | None:
    match value:
        case None:
            return None
        case list() | tuple():
            return array_literal([_text(item, kind) for item in value])
        case bytes():
            return f"\\x{value.hex()}" if kind.startswith("bytea") else value.decode()
        case datetime():
            return value.isoformat()
        case _:
            return str(value)
