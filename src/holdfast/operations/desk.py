"""What every operation needs from its Holdfast object."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from holdfast.domain.encrypted_jobs import JobCipher
from holdfast.domain.texts import check_name
from holdfast.job_function import Definition
from holdfast.runtime.blocking import RunSync
from holdfast.runtime.seam import Seam
from holdfast.settings import Settings
from holdfast.stores.protocol import Enrolled, Store, Transactions, require
from holdfast.transactions.drivers import Driver, recognize_callers
from holdfast.transactions.hooks import wake_after
from holdfast.wakeups.messengers import Messengers

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Desk:
    """`store` returns the open store of the running event loop, `make_store` one that is not open.
    They and `seam` are functions because tests move an object to another database."""

    store: Callable[[], Awaitable[Store]]
    make_store: Callable[[], Store]
    seam: Callable[[], Seam]
    new_id: Callable[[], UUID]
    definitions: Mapping[str, Definition]
    settings: Settings
    run_sync: RunSync
    cipher: JobCipher
    messengers: Messengers

    async def through(
        self, connection: Any, method: str, work: Callable[[Enrolled], Coroutine[Any, Any, T]]
    ) -> T:
        """Work in the transaction of the caller's connection, which sees what it did before.
        `method` names the public method that was called, or its sync twin."""
        foreign = recognize_callers(connection, method)
        store = require(self.make_store(), Transactions, "join a transaction of its caller")

        async def join(driver: Driver) -> T:
            await driver.join()
            return await work(store.enrol(driver, wake_after(connection)))

        return await foreign.run(join)


def check_operator(by: str | None, because: str | None) -> None:
    if by is not None:
        check_name("operator", by)
    if because is not None:
        check_name("reason", because)
