"""What the suite needs from the author of a messenger."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from holdfast.app import Holdfast
from holdfast.runtime.seam import Seam
from holdfast.settings import Settings
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.protocol import Store
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.messengers.faults import Faults, faulty
from holdfast.wakeups.protocol import Heard, Messenger


class Wiring:
    """One database, and how its workers are woken.

    `make_messengers` returns new messengers, as another process would have them. `cut` closes all
    of their connections, which can be made again. With `own_wakeups`, the database wakes workers
    itself, if it can.
    """

    def __init__(
        self,
        url: str,
        make_messengers: Callable[[], Sequence[Messenger]] = lambda: (),
        *,
        cut: Callable[[], Awaitable[None]] | None = None,
        own_wakeups: bool = False,
    ) -> None:
        self.url = url
        self.make_messengers = make_messengers
        self.cut = cut
        self._own_wakeups = own_wakeups

    def app(self, faults: Faults, **settings: Any) -> Holdfast:
        """An app as in another process, to which wake-ups come through these faults."""
        messengers = [faulty(each, faults) for each in self.make_messengers()]
        own = faults if self._own_wakeups else None
        return _WiredApp(self.url, own, messengers=messengers, **settings)


class _WiredApp(Holdfast):
    def __init__(self, url: str, faults: Faults | None, **options: Any) -> None:
        self._faults = faults
        super().__init__(url, **options)

    def _make_store(self) -> Store:
        make = _WiredSqlite if self._database.startswith("sqlite:") else _WiredPostgres
        return make(self._database, self._seam, self.settings, self._faults)


class _WiredSqlite(SqliteStore):
    def __init__(self, url: str, seam: Seam, settings: Settings, faults: Faults | None) -> None:
        path = url.removeprefix("sqlite:///")
        super().__init__(path, seam, synchronous="NORMAL", retention=settings.retention)
        self._faults = faults

    async def listen(self, heard: Heard) -> Any:
        return None if self._faults is None else await super().listen(self._faults.through(heard))


class _WiredPostgres(PostgresStore):
    def __init__(self, url: str, seam: Seam, settings: Settings, faults: Faults | None) -> None:
        super().__init__(
            url,
            seam,
            pool_size=settings.pool_size,
            retention=settings.retention,
            lease_seconds=settings.lease_seconds,
        )
        self._faults = faults

    async def listen(self, heard: Heard) -> Any:
        return None if self._faults is None else await super().listen(self._faults.through(heard))
