"""Connections to PostgreSQL: a small pool, translated errors, retries after a deadlock."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from importlib import import_module
from typing import Any, TypeVar
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from holdfast.domain.errors import ConfigurationError
from holdfast.runtime.seam import Seam
from holdfast.stores.postgres import row_security
from holdfast.stores.postgres.failures import is_conflict, is_driver_error, translate
from holdfast.stores.postgres.pool import CLOSE_SECONDS_MAX, Pool
from holdfast.stores.postgres.poolers import is_pooled, server_process
from holdfast.stores.postgres.row_security import RowSecurity
from holdfast.stores.postgres.server_limits import (
    COMMAND_SECONDS_MAX,
    CONNECT_SECONDS_MAX,
    Limits,
    to_set,
)
from holdfast.stores.postgres.types import connection_class, take_values_as_ours
from holdfast.stores.statements import Statement

T = TypeVar("T")

CONFLICT_TRIES_MAX = 5
CONFLICT_WAIT_SECONDS = 0.02

STATEMENT_CACHE_SIZE = 100

# With generic plans, the plans that the tests explain are the ones that run. Compiling a plan takes
# longer than running any of them. The database's default isolation level is for other programs.
_SESSION = (
    "SET jit = off; SET plan_cache_mode = force_generic_plan;"
    " SET default_transaction_isolation = 'read committed'"
)
# Not jit = off: while it looks up types, the driver turns jit off for the session, and leaves it so
# if it found it off.
_BEGIN_POOLED = (
    "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL jit_above_cost = -1;"
    " SET LOCAL plan_cache_mode = force_generic_plan"
)


class Connections:
    """Run work on pooled connections, all on one event loop."""

    def __init__(
        self, url: str, seam: Seam, size: int, limits: Limits, *, read_only: bool = False
    ) -> None:
        self._driver = load_driver()
        self._url, options = _split_options(url)
        self._cache_size = _whole_number(options, "statement_cache_size")
        # If the URL doesn't say, the first connection finds out.
        self.pooled = self._cache_size == 0
        self.address = _address(url)
        self._seam = seam
        self._size = size
        self._limits = limits
        self._of_connections = to_set(limits.of_connections)
        self._session = f"{_SESSION}; {to_set(limits.of_transactions)}; {self._of_connections}"
        self._begin_pooled = f"{_BEGIN_POOLED}; {to_set(limits.of_transactions, 'SET LOCAL')}"
        self.row_security = RowSecurity()  # as `open` finds it
        self._read_only = read_only
        self._pool: Pool | None = None
        self._plain_pool: Any = None

    @property
    def use(self) -> tuple[int, int]:
        """How many pooled connections are in use, and the most there can be."""
        return (0 if self._pool is None else self._pool.in_use), self._size

    @property
    def needs_transactions(self) -> bool:
        """Whether each statement needs a transaction of its own. Behind a pooler, each transaction
        may get another server process, but the settings, parse and execution of a statement must
        share one. Policies read the settings of their transaction."""
        return self.pooled or self.row_security.reads_scope

    async def run(
        self,
        work: Callable[[Any], Awaitable[T]],
        *,
        endless: bool = False,
        aside: bool = False,
        settings: str = "",
    ) -> T:
        """Run work on a connection, and again after a deadlock. Unless it is `endless`, end it when
        it takes too long. With `aside`, leave the most recently used connection to others. With
        `settings`, run it in a transaction with these."""
        tries = 1
        while True:
            try:
                return await self._run_once(work, endless, aside, settings)
            except Exception as error:
                if not is_driver_error(error):
                    raise
                if not is_conflict(error) or tries == CONFLICT_TRIES_MAX:
                    raise translate(error, self.address) from error
            await asyncio.sleep(CONFLICT_WAIT_SECONDS * tries * self._seam.random.random())
            tries += 1

    async def fetch(
        self, statement: Statement, values: Mapping[str, object], *, aside: bool = False
    ) -> Sequence[Any]:
        arguments = statement.arguments(values)
        rows: Sequence[Any] = await self.run(
            lambda connection: connection.fetch(statement.sql, *arguments), aside=aside
        )
        return rows

    async def read(
        self, settings: str, statement: Statement, values: Mapping[str, object]
    ) -> Sequence[Any]:
        """Fetch in a read-only transaction with these settings."""
        arguments = statement.arguments(values)
        rows: Sequence[Any] = await self.run(
            lambda connection: connection.fetch(statement.sql, *arguments),
            settings=f"SET TRANSACTION READ ONLY; {settings}",
        )
        return rows

    async def _run_once(
        self, work: Callable[[Any], Awaitable[T]], endless: bool, aside: bool, settings: str
    ) -> T:
        if self._pool is None:
            self._pool = Pool(self._connect_prepared, self._size, COMMAND_SECONDS_MAX)
        pool = self._pool
        connection = await pool.acquire(endless=endless, aside=aside)
        cut_off = False
        try:
            if not (settings or self.needs_transactions):
                return await work(connection)
            async with connection.transaction(settings=settings):
                return await work(connection)
        except AttributeError as error:
            if not connection.is_closed():
                raise
            # The driver's own, if the connection is ended between two of its steps.
            raise ConnectionResetError("the connection was closed") from error
        except BaseException as error:
            cut_off = not isinstance(error, Exception)
            raise
        finally:
            pool.release(connection, cut_off=cut_off, aside=aside)

    @property
    def _of_session(self) -> dict[str, str]:
        """What a session begins with, and keeps if it is reset."""
        return {"default_transaction_read_only": "on"} if self._read_only else {}

    @property
    def read_only(self) -> bool:
        return self._read_only

    async def check_read_only(self, connection: Any) -> None:
        """Refuse a pooler that ignores what a session begins with: it could change the database."""
        if self._read_only and await connection.fetchval("SHOW transaction_read_only") != "on":
            raise ConfigurationError(
                f"PostgreSQL at {self.address} can't be opened for reading only through a pooler in"
                " transaction mode; connect to the server itself"
            )

    def prolong(self, connection: Any) -> None:
        """Restart the time limit of work with many steps."""
        if self._pool is not None:
            self._pool.prolong(connection)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        """Lend a plain connection for a transaction of the application.

        These have a separate pool: handlers that keep theirs for long must not block settling.
        """
        if self._plain_pool is None:
            # With min_size=0 this neither connects nor suspends, so no other task runs in between.
            self._plain_pool = await self._driver.create_pool(
                self._url,
                min_size=0,
                max_size=self._size,
                connect=self._connect_limited,
                reset=self._reset,
            )
        pool = self._plain_pool
        with self._translated():
            connection = await pool.acquire()
        try:
            yield connection
        finally:
            try:
                await pool.release(connection)
            except Exception as error:
                # The connection is closed, and was dropped. What was committed stands.
                if not is_driver_error(error):
                    raise

    async def connect(self) -> Any:
        """Make a connection outside the pools; the caller closes it."""
        with self._translated():
            async with asyncio.timeout(self._limits.connect_seconds):
                return await self._connect_limited()

    async def share_servers(self) -> bool:
        """Does a pooler let connections share a server process?

        True is certain. False can be chance if others use the pooler at this moment.
        """
        if not self.pooled:
            return False
        connection = await self.connect()
        try:
            with self._translated():
                first = await server_process(connection)
                between = await self.run(server_process)
                # Twice, because two processes may take turns.
                after = {await server_process(connection) for _ in range(2)}
                return between == first or after != {first}
        finally:
            connection.terminate()

    async def close(self) -> None:
        pool, plain_pool = self._pool, self._plain_pool
        self._pool = self._plain_pool = None
        if pool is not None:
            await pool.close()
        if plain_pool is not None:
            try:
                await asyncio.wait_for(plain_pool.close(), CLOSE_SECONDS_MAX)
            except TimeoutError:
                plain_pool.terminate()

    def abandon(self) -> None:
        if self._pool is not None:
            self._pool.abandon()
        if self._plain_pool is not None:
            self._plain_pool.terminate()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if not is_driver_error(error):
                raise
            raise translate(error, self.address) from error

    async def _connect_prepared(self) -> Any:
        # After this, the pool enforces the time limit.
        async with asyncio.timeout(self._limits.connect_seconds):
            connection = await self._connect(command_timeout=None)
            connection.is_ours = True
            connection.begin = self._begin
            try:
                if self.pooled:
                    async with connection.transaction():
                        await take_values_as_ours(connection)
                else:
                    await connection.execute(self._session)
                    await take_values_as_ours(connection)
            except BaseException:
                connection.terminate()
                raise
        return connection

    async def _connect_limited(self, _url: str = "", **of_pool: Any) -> Any:
        """Connect for work that is not the engine's, without limits on its transactions."""
        connection = await self._connect(**of_pool)
        connection.begin = self._begin_plain
        if not self.pooled:
            try:
                await connection.execute(self._of_connections)
            except BaseException:
                connection.terminate()
                raise
        return connection

    async def _connect(
        self, *, command_timeout: float | None = COMMAND_SECONDS_MAX, **of_pool: Any
    ) -> Any:
        """Connect; if there is a pooler, connect again without prepared statements."""
        was_known = self.pooled  # another connection may find out while this one connects
        options = of_pool | {"command_timeout": command_timeout}
        connection = await self._connect_once(options)
        try:
            if was_known or not await is_pooled(connection):
                return connection
        except BaseException:
            connection.terminate()
            raise
        self.pooled = True
        if self._cache_size is not None:
            return connection
        await connection.close(timeout=CLOSE_SECONDS_MAX)
        return await self._connect_once(options)

    async def _connect_once(self, options: dict[str, Any]) -> Any:
        cache_size = self._cache_size
        if cache_size is None:
            cache_size = 0 if self.pooled else STATEMENT_CACHE_SIZE
        options |= {
            "connection_class": connection_class(self._driver),
            "timeout": CONNECT_SECONDS_MAX,
            "statement_cache_size": cache_size,
            "max_cached_statement_lifetime": 0,
            "server_settings": {"application_name": "holdfast"} | self._of_session,
        }
        connection = await self._seam.connect_postgres(self._url, **options)
        self._limits.set_on(connection)
        return connection

    def _begin(self, begin: str) -> str:
        """Begin a transaction of the engine."""
        return self._begin_plain(self._begin_pooled if self.pooled else begin)

    def _begin_plain(self, begin: str) -> str:
        if not self.row_security.reads_scope:
            return begin
        return f"{begin}; {row_security.settings()}"

    async def _reset(self, connection: Any) -> None:
        """Undo the session's settings; behind a pooler it would be another session's."""
        if not self.pooled:
            await connection.execute(f"{connection.get_reset_query()}; {self._of_connections}")


def load_driver() -> Any:
    try:
        return import_module("asyncpg")
    except ImportError as error:
        raise ConfigurationError(
            "PostgreSQL needs the driver asyncpg: pip install 'holdfast[postgres]'"
        ) from error


def _parse(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        # The driver ends the password at the first @, and its errors quote what follows.
        valid = parts.scheme in ("postgres", "postgresql") and parts.netloc.count("@") < 2
        # A / or ? or # ends it as well, and what follows looks like a path.
        valid = valid and not ("@" in parts.path or parts.fragment)
        valid = valid and all("=" in option for option in parts.query.split("&") if option)
        for host in parts.netloc.rpartition("@")[2].split(","):
            _ = urlsplit(f"//{host}").port  # raises if it is not a port
    except ValueError:
        valid = False
    if not valid:
        raise ConfigurationError(
            "a PostgreSQL URL looks like postgresql://user:password@host:5432/database; in the user"
            " and the password, write @ as %40, / as %2F, ? as %3F and # as %23"
        )
    for host in _hosts(parts).split(","):
        _check_host(unquote(re.sub(r":\d*$", "", host)))
    return parts


def _hosts(parts: SplitResult) -> str:
    return parts.netloc.rpartition("@")[2] or dict(parse_qsl(parts.query)).get("host", "localhost")


def _check_host(host: str) -> None:
    """Reject what the driver can't look up: its error would not name the host."""
    try:
        if not host.startswith("/"):  # as the directory of a socket does
            host.encode("idna")
    except UnicodeError:
        raise ConfigurationError(
            f"the host {host!r} in the database URL is not a valid host name"
        ) from None


def _split_options(url: str) -> tuple[str, dict[str, str]]:
    """Remove the options that are not for the server from the URL's query."""
    parts = _parse(url)
    query = parse_qsl(parts.query)
    # Other client encodings than UTF-8, the driver's default, can't express all text.
    names = ("schema", "statement_cache_size", "client_encoding")
    ours = {name: value for name, value in query if name in names}
    rest = urlencode([pair for pair in query if pair[0] not in ours])
    return parts._replace(query=rest).geturl(), ours


def _whole_number(options: dict[str, str], name: str) -> int | None:
    value = options.get(name)
    if value is None:
        return None
    if not (value.isascii() and value.isdigit()):
        raise ConfigurationError(f"{name} in a database URL must be a whole number")
    return int(value)


def _address(url: str) -> str:
    parts = _parse(url)
    return f"{_hosts(parts)}{parts.path}"
