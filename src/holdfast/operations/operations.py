"""What operators do with an app. Each noun is imported when it is first used: together, these
modules are a tenth of what an app imports, and most processes use none or few."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Generic, Never, Protocol, TypeVar, overload

from holdfast.operations.desk import Desk
from holdfast.operations.own_tables import OwnTables
from holdfast.transactions.tables import Tables

if TYPE_CHECKING:
    from holdfast.operations.audit import Audit
    from holdfast.operations.breakers import Breakers
    from holdfast.operations.bulk import Bulk
    from holdfast.operations.bulk_run import BulkRuns
    from holdfast.operations.dead import Dead
    from holdfast.operations.jobs import Jobs
    from holdfast.operations.keys import Keys
    from holdfast.operations.messages import Messages
    from holdfast.operations.pepper import Pepper
    from holdfast.operations.queues import Queues
    from holdfast.operations.roles import Roles
    from holdfast.operations.workers import Workers

T = TypeVar("T")


class HasOperations(Protocol):
    _operations: Operations


class Noun(Generic[T]):
    """`hf.jobs` and the like: an attribute of an app or a tenant, which its operations make.
    Tools that ask the class, such as help() and autospecs, treat it like a property."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name.removeprefix("_")

    @overload
    def __get__(self, app: None, owner: type) -> Noun[T]: ...

    @overload
    def __get__(self, app: HasOperations, owner: type) -> T: ...

    def __get__(self, app: HasOperations | None, owner: type) -> Noun[T] | T:
        if app is None:
            return self
        found: T = getattr(app._operations, self._name)
        return found

    def __set__(self, app: HasOperations, value: Never) -> None:
        raise AttributeError(f"`{self._name}` can't be set")


class Operations:
    """`database` returns the app's URL, and `all_tables` the tables that it has besides the jobs'.
    With a tenant, `jobs`, `dead` and `bulk` are about that tenant."""

    def __init__(
        self,
        desk: Desk,
        own: OwnTables,
        database: Callable[[], str],
        all_tables: Callable[[], Sequence[Tables]],
        tenant: str | None = None,
    ) -> None:
        self._desk = desk
        self._own = own
        self._database = database
        self._all_tables = all_tables
        self._tenant = tenant

    def of(self, tenant: str) -> Operations:
        return Operations(self._desk, self._own, self._database, self._all_tables, tenant)

    @cached_property
    def jobs(self) -> Jobs:
        from holdfast.operations.jobs import Jobs

        return Jobs(self._desk, self._tenant)

    @cached_property
    def dead(self) -> Dead:
        from holdfast.operations.dead import Dead

        return Dead(self.jobs, self._own)

    @cached_property
    def queues(self) -> Queues:
        from holdfast.operations.queues import Queues

        return Queues(self._desk, self.jobs)

    @cached_property
    def breakers(self) -> Breakers:
        from holdfast.operations.breakers import Breakers

        return Breakers(self._desk)

    @cached_property
    def bulk(self) -> Bulk:
        from holdfast.operations.bulk import Bulk

        return Bulk(self._desk, self._own, self._tenant)

    @cached_property
    def bulk_runs(self) -> BulkRuns:
        from holdfast.operations.bulk_run import BulkRuns

        return BulkRuns(self._desk, self._own)

    @cached_property
    def workers(self) -> Workers:
        from holdfast.operations.workers import Workers

        return Workers(self._desk)

    @cached_property
    def messages(self) -> Messages:
        from holdfast.operations.messages import Messages

        return Messages(self._desk, self.jobs)

    @cached_property
    def roles(self) -> Roles:
        from holdfast.operations.roles import Roles

        return Roles(self._desk, self._database, self._all_tables)

    @cached_property
    def audit(self) -> Audit:
        from holdfast.operations.audit import Audit

        return Audit(self._desk, self._own)

    @cached_property
    def keys(self) -> Keys:
        from holdfast.operations.keys import Keys

        return Keys(self._desk, self._own, self.pepper, self.audit)

    @cached_property
    def pepper(self) -> Pepper:
        from holdfast.operations.pepper import Pepper

        may_make = not self._desk.settings.read_only
        return Pepper(self._database, self._own, may_make=may_make)
