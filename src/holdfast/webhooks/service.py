"""The API of webhooks: subscribe, publish, and inspect sagas, attempts and dead letters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID
from weakref import ReferenceType, WeakKeyDictionary, ref

from holdfast import ConfigurationError, Holdfast, JobFunction, Retry, WrongState
from holdfast.domain.job import DEFAULT_TENANT
from holdfast.webhooks import limits, retention, validation
from holdfast.webhooks.dashboard import add_pages
from holdfast.webhooks.delivery import Deliverer
from holdfast.webhooks.delivery_job import ORCHESTRATION, declare_delivery
from holdfast.webhooks.drafts import is_same, make_draft
from holdfast.webhooks.errors import (
    DeadLetterNotFound,
    EventConflict,
    EventNotFound,
    SagaNotFound,
)
from holdfast.webhooks.orchestrator import Orchestrator
from holdfast.webhooks.policy import STANDARD, Policy
from holdfast.webhooks.presets import STANDARD_WEBHOOKS, Preset, by_name
from holdfast.webhooks.replays import Replays
from holdfast.webhooks.rows import (
    Attempt,
    DeadLetter,
    Event,
    NewSubscription,
    Replay,
    ReplayCount,
    Saga,
    SagaPage,
    Subscription,
)
from holdfast.webhooks.secrets import FORGET_SECONDS
from holdfast.webhooks.subscriptions import Subscriptions

if TYPE_CHECKING:
    from holdfast.api import Router

T = TypeVar("T")

TEST_EVENT: Final = "webhooks.test"
_LAST: Final = UUID(int=2**128 - 1)

# Webhooks live as long as their app, which holds their jobs.
_known: WeakKeyDictionary[Holdfast, ReferenceType[Webhooks]] = WeakKeyDictionary()


class Webhooks:
    """Deliver events to subscribers, as jobs of `hf`.

    Declares its tables, its job, its sweeps and its routes on `hf`. A worker of the queue
    `webhooks.delivery` delivers, one of `webhooks.orchestration` decides, and one of all queues
    does both.
    """

    def __init__(
        self,
        hf: Holdfast,
        *,
        presets: Iterable[Preset] = (),
        https_only: bool = True,
        allow_private_addresses: bool = False,
        retry: Retry = STANDARD,
        timeout_seconds: float = limits.TIMEOUT_SECONDS,
        guard_seconds: float = limits.GUARD_SECONDS,
        disable_after_seconds: float = limits.DISABLE_AFTER_SECONDS,
        sagas_kept_seconds: float = limits.SAGAS_KEPT_SECONDS,
        dead_letters_kept_seconds: float = limits.DEAD_LETTERS_KEPT_SECONDS,
    ) -> None:
        policy = Policy(
            https_only=https_only,
            allow_private_addresses=allow_private_addresses,
            retry=retry,
            timeout_seconds=timeout_seconds,
            guard_seconds=guard_seconds,
            disable_after_seconds=disable_after_seconds,
        )
        known_presets = by_name(presets)
        self._hf = hf
        self._tables = hf.tables("webhooks", package=__package__)
        self._retention = retention.Retention(
            hf, self._tables, sagas_kept_seconds, dead_letters_kept_seconds
        )
        self._subscriptions = Subscriptions(hf, self._tables, known_presets, policy)
        self._replays = Replays(hf, self._tables)
        deliverer = Deliverer(self._tables, known_presets, self._subscriptions.secrets)
        self._declare_sweeps(declare_delivery(hf, deliverer))
        hf.add_routes(self._make_routes)
        add_pages(hf, self, self._tables)
        _known[hf] = ref(self)

    @classmethod
    def of(cls, hf: Holdfast) -> Webhooks:
        """Return the webhooks that were created for this app, or raise ConfigurationError."""
        found = _known[hf]() if hf in _known else None
        if found is None:
            raise ConfigurationError("this app has no webhooks; create them with Webhooks(hf)")
        return found

    def _make_routes(self, _service: object) -> Router:
        # Imported here, because workers and applications need no web framework.
        from holdfast.webhooks.routes import routes

        return routes(self)

    def _declare_sweeps(self, deliver: JobFunction[[UUID, int], None]) -> None:
        hf = self._hf
        hf.sweep(queue=ORCHESTRATION)(Orchestrator(hf, self._tables, self._replays, deliver).sweep)
        for every_seconds, sweep in (
            (FORGET_SECONDS, self._subscriptions.secrets.forget_expired),
            (retention.EVERY_SECONDS, self._retention.delete_old_webhooks),
        ):
            hf.sweep(queue=ORCHESTRATION, every_seconds=every_seconds)(sweep)

    async def subscribe(
        self,
        url: str,
        *,
        event_types: Iterable[str] = (),
        tenant: str = DEFAULT_TENANT,
        preset: str = STANDARD_WEBHOOKS.name,
        secret: str | None = None,
        connection: Any = None,
    ) -> NewSubscription:
        """Send these event types, or all, to the URL. Only this call returns the secret."""
        tenant = validation.tenant(tenant)
        async with self._joined(connection, tenant) as connection:
            return await self._subscriptions.add(
                connection, url, event_types, tenant, preset, secret
            )

    async def subscription(
        self, subscription_id: UUID, *, tenant: str | None = None
    ) -> Subscription:
        """Find a subscription. With `tenant`, one of another tenant does not exist."""
        async with self._transaction(tenant, read_only=True) as connection:
            known = await self._subscriptions.known(connection, subscription_id, tenant)
            return known.subscription()

    async def subscriptions(
        self,
        *,
        tenant: str = DEFAULT_TENANT,
        limit: int = limits.PAGE_MAX,
        after: UUID | None = None,
    ) -> list[Subscription]:
        """List a tenant's subscriptions, oldest first, from the one after `after`."""
        tenant, limit = validation.tenant(tenant), validation.rows_max(limit)
        async with self._transaction(tenant, read_only=True) as connection:
            return await self._subscriptions.list(
                connection, tenant, limit, validation.id_or_none(after)
            )

    async def change(
        self,
        subscription_id: UUID,
        *,
        url: str | None = None,
        event_types: Iterable[str] | None = None,
        tenant: str | None = None,
        connection: Any = None,
    ) -> Subscription:
        """Replace a subscription's URL, its event types, or both. The next attempts use them."""
        async with self._joined(connection, tenant) as connection:
            return await self._subscriptions.change(
                connection, subscription_id, tenant, url, event_types
            )

    async def adopt(self, subscription_id: UUID) -> None:
        """Apply the current settings of this application to the subscription from now on."""
        async with self._transaction() as connection:
            await self._subscriptions.adopt(connection, subscription_id)

    async def rotate_secret(
        self,
        subscription_id: UUID,
        *,
        keep_seconds: float = limits.SECRET_KEPT_SECONDS,
        secret: str | None = None,
        tenant: str | None = None,
        connection: Any = None,
    ) -> NewSubscription:
        """Give the subscription a new secret, which only this call returns.

        For `keep_seconds`, the old secrets sign too: give the receiver the new one in that time. If
        an old one leaked, pass 0.
        """
        validation.keep_seconds(keep_seconds)
        async with self._joined(connection, tenant) as connection:
            return await self._subscriptions.rotate(
                connection, subscription_id, tenant, keep_seconds, secret
            )

    async def disable(
        self, subscription_id: UUID, *, tenant: str | None = None, connection: Any = None
    ) -> Subscription:
        """Send nothing more to the subscription: it gets no new sagas, and its open ones end as
        `Canceled`.

        With `tenant`, a subscription of another tenant does not exist.
        """
        async with self._joined(connection, tenant) as connection:
            disabled = await self._subscriptions.disable(connection, subscription_id, tenant)
            await self._wake(connection)
            return disabled

    async def enable(
        self, subscription_id: UUID, *, tenant: str | None = None, connection: Any = None
    ) -> Subscription:
        """Send new events to the subscription again. Use `replay` for those that it missed."""
        async with self._joined(connection, tenant) as connection:
            return await self._subscriptions.enable(connection, subscription_id, tenant)

    async def delete(
        self, subscription_id: UUID, *, tenant: str | None = None, connection: Any = None
    ) -> None:
        """Delete the subscription and its secrets; its open sagas end as `Canceled`. Sagas and dead
        letters that have ended stay until their retention is over."""
        async with self._joined(connection, tenant) as connection:
            await self._subscriptions.delete(connection, subscription_id, tenant)
            await self._wake(connection)

    async def send_test(
        self,
        subscription_id: UUID,
        payload: Mapping[str, Any] | None = None,
        *,
        tenant: str | None = None,
        connection: Any = None,
    ) -> Event:
        """Publish an event of type `webhooks.test` to this subscription only."""
        async with self._joined(connection, tenant) as connection:
            known = await self._subscriptions.known(connection, subscription_id, tenant)
            if known.disabled_at is not None:
                raise WrongState(f"subscription {subscription_id} is disabled; enable it first")
            draft = make_draft(
                self._hf.new_id(), TEST_EVENT, payload or {"test": True}, known.tenant
            )
            return await self._publish(connection, draft | {"only_for": subscription_id})

    async def publish(
        self,
        event_type: str,
        payload: Mapping[str, Any],
        *,
        tenant: str = DEFAULT_TENANT,
        id: UUID | None = None,
        aggregate_type: str | None = None,
        aggregate_id: str | None = None,
        occurred_at: datetime | None = None,
        connection: Any = None,
    ) -> Event:
        """Record an event, and start a saga for each of the tenant's subscriptions that want it.

        Publishing the same ID twice makes one event. With a `connection` from `hf.transaction()` or
        `ctx.completing()`, the event is published if and when that transaction commits.
        """
        draft = make_draft(
            self._hf.new_id() if id is None else id,
            event_type,
            payload,
            tenant,
            aggregate_type,
            aggregate_id,
            occurred_at,
        )
        async with self._joined(connection, tenant) as connection:
            return await self._publish(connection, draft)

    async def _publish(self, connection: Any, draft: dict[str, Any]) -> Event:
        """Insert the event; the database inserts its sagas."""
        statements = self._tables.on(connection)
        if inserted := await statements.all("insert_event", Event, **draft):
            await self._wake(connection)
            return inserted[0]
        event = await statements.one("find_event", Event, tenant=draft["tenant"], id=draft["id"])
        if event is None or not is_same(event, draft):
            raise EventConflict(draft["id"])
        return event

    async def _wake(self, connection: Any) -> None:
        """Wake the orchestrator. On PostgreSQL, the database does."""
        if getattr(connection, "dialect", None) == "sqlite":
            await self._hf.queues.wake(ORCHESTRATION, connection=connection)

    def _transaction(
        self, tenant: str | None = None, *, read_only: bool = False
    ) -> AbstractAsyncContextManager[Any]:
        """A transaction that sees one tenant's rows, or all."""
        tenant = validation.tenant_or_none(tenant)
        hf = self._hf if tenant is None else self._hf.for_tenant(tenant)
        return hf.transaction(read_only=read_only)

    def _joined(self, connection: Any, tenant: str | None) -> AbstractAsyncContextManager[Any]:
        """The caller's transaction, or one for this call."""
        if connection is None:
            return self._transaction(tenant)
        validation.tenant_or_none(tenant)
        return nullcontext(connection)

    async def event(self, event_id: UUID, *, tenant: str = DEFAULT_TENANT) -> Event:
        """Find a tenant's event."""
        id = validation.id(event_id)
        found = await self._one("find_event", Event, validation.tenant(tenant), id=id)
        if found is None:
            raise EventNotFound(event_id)
        return found

    async def sagas(self, *, event_id: UUID, tenant: str = DEFAULT_TENANT) -> list[Saga]:
        """List the sagas of a tenant's event, oldest first; requeued ones come last."""
        return await self._all(
            "sagas_of_event", Saga, validation.tenant(tenant), event_id=validation.id(event_id)
        )

    async def saga(self, saga_id: UUID, *, tenant: str | None = None) -> Saga:
        """Find a saga. With `tenant`, one of another tenant does not exist."""
        found = await self._one("find_saga", Saga, tenant, id=validation.id(saga_id))
        if found is None:
            raise SagaNotFound(saga_id)
        return found

    async def list_sagas(
        self,
        *,
        tenant: str = DEFAULT_TENANT,
        status: str | None = None,
        subscription_id: UUID | None = None,
        limit: int = 100,
        after: UUID | None = None,
    ) -> SagaPage:
        """List a tenant's sagas, newest first, from the one after `after`.

        A page can have fewer sagas than `limit` and still have an `after`: one call reads a limited
        number of rows.
        """
        validation.tenant(tenant)
        validation.rows_max(limit)
        validation.status(status)
        looking: dict[str, Any] = {
            "before": validation.id_or_none(after) or _LAST,
            "rows_max": limit if status is None else limits.SAGAS_LOOK_MAX,
        }
        if subscription_id is None:
            found = await self._all("sagas_of_tenant", Saga, tenant, **looking)
        else:
            looking["subscription_id"] = validation.id(subscription_id)
            found = await self._all("sagas_of_subscription", Saga, tenant, **looking)
        wanted = [saga for saga in found if status in (None, saga.status)][:limit]
        if len(wanted) == limit:
            return SagaPage(wanted, wanted[-1].id)
        return SagaPage(wanted, found[-1].id if len(found) == looking["rows_max"] else None)

    async def cancel(
        self, saga_id: UUID, *, tenant: str | None = None, connection: Any = None
    ) -> Saga:
        """End a saga as `Canceled`; again, it stays so. A request that is being sent may still
        arrive. Raise WrongState if the saga has ended otherwise."""
        validation.id(saga_id)
        async with self._joined(connection, tenant) as connection:
            statements = self._tables.on(connection)
            find = {"id": saga_id, "tenant": tenant}
            if await statements.one("find_saga", Saga, **find) is None:
                raise SagaNotFound(saga_id)
            await statements.value("cancel_saga", id=saga_id)
            saga = await statements.one("find_saga", Saga, **find)
            assert saga is not None
            if saga.status != "Canceled":
                raise WrongState(f"saga {saga_id} can't be canceled: it is {saga.status}")
            return saga

    async def attempts(self, saga_id: UUID, *, tenant: str | None = None) -> list[Attempt]:
        """List the attempts of a saga, oldest first; with `tenant`, only of that tenant's saga."""
        return await self._all("attempts_of_saga", Attempt, tenant, saga_id=validation.id(saga_id))

    async def dead_letter(self, dead_letter_id: UUID, *, tenant: str | None = None) -> DeadLetter:
        """Find a dead letter. With `tenant`, one of another tenant does not exist."""
        id = validation.id(dead_letter_id)
        found = await self._one("find_dead_letter", DeadLetter, tenant, id=id)
        if found is None:
            raise DeadLetterNotFound(dead_letter_id)
        return found

    async def dead_letters(
        self, *, tenant: str = DEFAULT_TENANT, limit: int = 100, after: UUID | None = None
    ) -> list[DeadLetter]:
        """List a tenant's dead letters, newest first, from the one after `after`."""
        return await self._all(
            "dead_letters_of_tenant",
            DeadLetter,
            validation.tenant(tenant),
            before=validation.id_or_none(after) or _LAST,
            rows_max=validation.rows_max(limit),
        )

    async def _one(
        self, statement: str, row: type[T], tenant: str | None, **parameters: Any
    ) -> T | None:
        found = await self._all(statement, row, tenant, **parameters)
        return found[0] if found else None

    async def _all(
        self, statement: str, row: type[T], tenant: str | None, **parameters: Any
    ) -> list[T]:
        async with self._transaction(tenant, read_only=True) as connection:
            statements = self._tables.on(connection)
            return await statements.all(statement, row, tenant=tenant, **parameters)

    async def requeue(
        self, dead_letter_id: UUID, *, tenant: str | None = None, connection: Any = None
    ) -> Saga:
        """Start a new saga for a dead letter's event; a second call returns the same saga.

        With `tenant`, a dead letter of another tenant does not exist. Raise WrongState if its
        subscription is disabled or deleted.
        """
        validation.id(dead_letter_id)
        async with self._joined(connection, tenant) as connection:
            statements = self._tables.on(connection)
            find = {"id": dead_letter_id, "tenant": tenant}
            letter = await statements.one("find_dead_letter", DeadLetter, **find)
            if letter is None:
                raise DeadLetterNotFound(dead_letter_id)
            again = await statements.one("saga_of_dead_letter", Saga, dead_letter_id=letter.id)
            if again is not None:
                return again
            if not await statements.value("is_enabled", id=letter.subscription_id):
                raise WrongState(
                    f"the subscription of dead letter {letter.id} is disabled or deleted"
                )
            await statements.execute("requeue", dead_letter_id=dead_letter_id)
            await self._wake(connection)
            saga = await statements.one("saga_of_dead_letter", Saga, dead_letter_id=dead_letter_id)
            assert saga is not None
            return saga

    async def count_replay(
        self,
        since: datetime,
        until: datetime,
        *,
        subscription_id: UUID | None = None,
        tenant: str = DEFAULT_TENANT,
    ) -> ReplayCount:
        """Count what `replay` would send, and change nothing."""
        validation.time_range(since, until)
        async with self._transaction(validation.tenant(tenant), read_only=True) as connection:
            if subscription_id is not None:
                await self._subscriptions.known(connection, subscription_id, tenant)
            return await self._replays.count(connection, tenant, since, until, subscription_id)

    async def replay(
        self,
        since: datetime,
        until: datetime,
        *,
        subscription_id: UUID | None = None,
        tenant: str = DEFAULT_TENANT,
        connection: Any = None,
    ) -> Replay:
        """Send the events that were published from `since` until before `until` again: to every
        subscription that wants them, or only to one. The orchestrator does it, in small steps."""
        validation.time_range(since, until)
        async with self._joined(connection, validation.tenant(tenant)) as connection:
            if subscription_id is not None:
                await self._subscriptions.known(connection, subscription_id, tenant)
            replay = await self._replays.start(connection, tenant, since, until, subscription_id)
            await self._hf.queues.wake(ORCHESTRATION, connection=connection)
            return replay

    async def get_replay(self, replay_id: UUID, *, tenant: str | None = None) -> Replay:
        """Find a replay, with what it has sent so far."""
        validation.id(replay_id)
        async with self._transaction(tenant, read_only=True) as connection:
            return await self._replays.get(connection, replay_id, tenant)
