"""The API of webhooks: subscribe, publish, and inspect sagas, attempts and dead letters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import datetime
from typing import Any, Final, TypeVar
from uuid import UUID

import msgspec

from holdfast import Context, Holdfast, Retry
from holdfast.domain import codec
from holdfast.domain.job import DEFAULT_TENANT
from holdfast.webhooks import limits, validation
from holdfast.webhooks.delivery import Deliverer, Delivery
from holdfast.webhooks.endpoints import check_url
from holdfast.webhooks.errors import BadEndpoint, DeadLetterNotFound, EventConflict
from holdfast.webhooks.events import log_attempt
from holdfast.webhooks.orchestrator import Orchestrator
from holdfast.webhooks.policy import STANDARD, Policy
from holdfast.webhooks.presets import STANDARD_WEBHOOKS, Preset, by_name
from holdfast.webhooks.rows import Attempt, DeadLetter, Event, NewSubscription, Saga, Subscription
from holdfast.webhooks.secrets import FORGET_SECONDS, SubscriptionSecrets
from holdfast.webhooks.sender import Report, open_client, send

T = TypeVar("T")

DELIVERY: Final = "webhooks.delivery"
ORCHESTRATION: Final = "webhooks.orchestration"
_IDENTITY: Final = ("tenant", "aggregate_type", "aggregate_id")
_AFTER_A_LOST_LEASE: Final = Retry.exponential(max_attempts=limits.LEASES_MAX, base=1, cap=10)


class _SubscriptionRow(msgspec.Struct, frozen=True):
    id: UUID
    tenant: str
    url: str
    event_types: str
    preset: str
    disabled_at: datetime | None

    def subscription(self) -> Subscription:
        types = msgspec.json.decode(self.event_types, type=tuple[str, ...])
        return Subscription(**{**msgspec.structs.asdict(self), "event_types": types})


class Webhooks:
    """Deliver events to subscribers, as jobs of `hf`.

    Declares its tables, its job and its sweep on `hf`. A worker of the queue `webhooks.delivery`
    delivers, one of `webhooks.orchestration` decides, and one of all queues does both.
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
    ) -> None:
        self._policy = Policy(
            https_only=https_only,
            allow_private_addresses=allow_private_addresses,
            retry=retry,
            timeout_seconds=timeout_seconds,
            guard_seconds=guard_seconds,
        )
        self._presets = by_name(presets)
        self._policies = {
            name: self._policy.under(preset) for name, preset in self._presets.items()
        }
        self._hf = hf
        self._tables = hf.tables("webhooks", package=__package__)
        self._secrets = SubscriptionSecrets(hf, self._tables)
        self._deliverer = Deliverer(self._tables, self._presets, self._secrets)
        self._declare_jobs()

    def _declare_jobs(self) -> None:
        hf, deliverer = self._hf, self._deliverer

        async def wake_orchestrator(connection: Any) -> None:
            await hf.queues.wake(ORCHESTRATION, connection=connection)

        @hf.job(
            name="webhooks.deliver",
            queue=DELIVERY,
            retry=_AFTER_A_LOST_LEASE,
            timeout_seconds=2 * limits.TIMEOUT_SECONDS_MAX,
        )
        async def deliver(ctx: Context, saga_id: UUID, attempt_no: int) -> None:
            try:
                delivery, report = await self._send(ctx.job_id)
                async with ctx.completing() as connection:
                    await deliverer.report(connection, ctx.job_id, delivery, report)
                    await wake_orchestrator(connection)
            except Exception as error:
                judged = ctx.judge(error)
                if judged.state.ended:
                    async with ctx.failing(error) as connection:
                        if await deliverer.report_failure(connection, ctx.job_id, judged.code):
                            await wake_orchestrator(connection)
                raise
            log_attempt(ctx.job_id, delivery, report)

        hf.sweep(queue=ORCHESTRATION)(Orchestrator(hf, self._tables, deliver).sweep)
        forget = hf.sweep(queue=ORCHESTRATION, every_seconds=FORGET_SECONDS)
        forget(self._secrets.forget_expired)

    async def _send(self, job_id: UUID) -> tuple[Delivery, Report]:
        async with self._hf.transaction(read_only=True) as connection:
            delivery, request, echoes = await self._deliverer.prepare(connection, job_id)
        policy = Policy.decode(delivery.policy)
        async with open_client(policy) as client:
            return delivery, await send(client, policy, delivery.url, request, echoes)

    async def subscribe(
        self,
        url: str,
        *,
        event_types: Iterable[str] = (),
        tenant: str = DEFAULT_TENANT,
        preset: str = STANDARD_WEBHOOKS.name,
        secret: str | None = None,
    ) -> NewSubscription:
        """Send these event types, or all, to the URL. Only this call returns the secret."""
        chosen = self._preset(preset)
        self._check_url(url)
        subscription = NewSubscription(
            id=self._hf.new_id(),
            tenant=validation.tenant(tenant),
            url=url,
            event_types=validation.event_types(event_types),
            preset=preset,
            secret=chosen.new_secret(secret),
        )
        await self._record(subscription)
        return subscription

    def _preset(self, name: str) -> Preset:
        if name not in self._presets:
            raise BadEndpoint(
                f"preset must be one of {', '.join(self._presets)}, not {name!r}; pass your own to"
                " Webhooks(hf, presets=[...])"
            )
        return self._presets[name]

    def _check_url(self, url: str) -> None:
        check_url(
            url,
            https_only=self._policy.https_only,
            allow_private_addresses=self._policy.allow_private_addresses,
        )

    async def adopt(self, subscription_id: UUID) -> None:
        """Apply the current settings of this application to the subscription from now on."""
        validation.id(subscription_id)
        async with self._hf.transaction() as connection:
            known = await self._known(connection, subscription_id)
            policy = self._policies[self._preset(known.preset).name]
            self._check_url(known.url)
            await self._tables.on(connection).execute(
                "set_policy", id=subscription_id, policy=policy.encode()
            )

    async def rotate_secret(
        self,
        subscription_id: UUID,
        *,
        keep_seconds: float = limits.SECRET_KEPT_SECONDS,
        secret: str | None = None,
    ) -> NewSubscription:
        """Give the subscription a new secret, which only this call returns.

        For `keep_seconds`, the old secrets sign too: give the receiver the new one in that time. If
        an old one leaked, pass 0.
        """
        validation.id(subscription_id)
        validation.keep_seconds(keep_seconds)
        async with self._hf.transaction() as connection:
            known = await self._known(connection, subscription_id)
            made = self._preset(known.preset).new_secret(secret)
            subscription = NewSubscription(
                **msgspec.structs.asdict(known.subscription()), secret=made
            )
            await self._secrets.rotate(connection, subscription, keep_seconds)
        return subscription

    async def _known(self, connection: Any, subscription_id: UUID) -> _SubscriptionRow:
        statements = self._tables.on(connection)
        known = await statements.one("find_subscription", _SubscriptionRow, id=subscription_id)
        if known is None:
            raise BadEndpoint(f"subscription {subscription_id} does not exist")
        return known

    async def disable(self, subscription_id: UUID, *, tenant: str | None = None) -> None:
        """Send nothing more to the subscription: it gets no new sagas, and sagas that are waiting
        for an attempt end as `Canceled` when it is due.

        With `tenant`, a subscription of another tenant does not exist.
        """
        validation.id(subscription_id)
        async with self._transaction(validation.tenant_or_none(tenant)) as connection:
            known = await self._known(connection, subscription_id)
            if tenant not in (None, known.tenant):
                raise BadEndpoint(f"subscription {subscription_id} does not exist")
            await self._tables.on(connection).value("disable", id=subscription_id)

    async def _record(self, subscription: NewSubscription) -> None:
        async with self._transaction(subscription.tenant) as connection:
            statements = self._tables.on(connection)
            existing = await statements.value("count_subscriptions", tenant=subscription.tenant)
            if existing >= limits.SUBSCRIPTIONS_MAX:
                raise BadEndpoint(
                    f"a tenant can have at most {limits.SUBSCRIPTIONS_MAX} subscriptions"
                )
            await statements.execute(
                "insert_subscription",
                id=subscription.id,
                tenant=subscription.tenant,
                url=subscription.url,
                event_types=msgspec.json.encode(subscription.event_types).decode(),
                preset=subscription.preset,
                policy=self._policies[subscription.preset].encode(),
            )
            await self._secrets.add(connection, subscription)

    async def subscriptions(self, *, tenant: str = DEFAULT_TENANT) -> list[Subscription]:
        """List a tenant's subscriptions."""
        rows = await self._all(
            "subscriptions_of_tenant", _SubscriptionRow, validation.tenant(tenant)
        )
        return [row.subscription() for row in rows]

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
        draft = {
            "id": self._hf.new_id() if id is None else validation.id(id),
            "tenant": validation.tenant(tenant),
            "event_type": validation.event_type(event_type),
            "aggregate_type": validation.name("aggregate_type", aggregate_type),
            "aggregate_id": validation.name("aggregate_id", aggregate_id),
            "occurred_at": validation.time(occurred_at),
            "payload": validation.payload(payload),
        }
        joined = self._transaction(tenant) if connection is None else nullcontext(connection)
        async with joined as connection:
            return await self._publish(connection, draft)

    async def _publish(self, connection: Any, draft: dict[str, Any]) -> Event:
        """Insert the event; the database inserts its sagas."""
        statements = self._tables.on(connection)
        if inserted := await statements.all("insert_event", Event, **draft):
            await self._wake(connection)
            return inserted[0]
        event = await statements.one("find_event", Event, tenant=draft["tenant"], id=draft["id"])
        if event is None or not _is_same(event, draft):
            raise EventConflict(draft["id"])
        return event

    async def _wake(self, connection: Any) -> None:
        """Wake the orchestrator for new sagas. On PostgreSQL, the database does."""
        if getattr(connection, "dialect", None) == "sqlite":
            await self._hf.queues.wake(ORCHESTRATION, connection=connection)

    def _transaction(
        self, tenant: str | None = None, *, read_only: bool = False
    ) -> AbstractAsyncContextManager[Any]:
        """A transaction that sees one tenant's rows, or all."""
        hf = self._hf if tenant is None else self._hf.for_tenant(tenant)
        return hf.transaction(read_only=read_only)

    async def sagas(self, *, event_id: UUID, tenant: str = DEFAULT_TENANT) -> list[Saga]:
        """List the sagas of a tenant's event, oldest first; requeued ones come last."""
        return await self._all(
            "sagas_of_event", Saga, validation.tenant(tenant), event_id=validation.id(event_id)
        )

    async def attempts(self, saga_id: UUID, *, tenant: str | None = None) -> list[Attempt]:
        """List the attempts of a saga, oldest first; with `tenant`, only of that tenant's saga."""
        chosen = validation.tenant_or_none(tenant)
        return await self._all("attempts_of_saga", Attempt, chosen, saga_id=validation.id(saga_id))

    async def dead_letters(
        self, *, tenant: str = DEFAULT_TENANT, limit: int = 100
    ) -> list[DeadLetter]:
        """List a tenant's dead letters, newest first."""
        return await self._all(
            "dead_letters_of_tenant",
            DeadLetter,
            validation.tenant(tenant),
            rows_max=validation.rows_max(limit),
        )

    async def _all(
        self, statement: str, row: type[T], tenant: str | None, **parameters: Any
    ) -> list[T]:
        async with self._transaction(tenant, read_only=True) as connection:
            statements = self._tables.on(connection)
            return await statements.all(statement, row, tenant=tenant, **parameters)

    async def requeue(self, dead_letter_id: UUID, *, tenant: str | None = None) -> Saga:
        """Start a new saga for a dead letter's event; a second call returns the same saga.

        With `tenant`, a dead letter of another tenant does not exist.
        """
        validation.id(dead_letter_id)
        async with self._transaction(validation.tenant_or_none(tenant)) as connection:
            statements = self._tables.on(connection)
            if not await statements.value("has_dead_letter", id=dead_letter_id, tenant=tenant):
                raise DeadLetterNotFound(dead_letter_id)
            await statements.execute("requeue", dead_letter_id=dead_letter_id)
            await self._wake(connection)
            saga = await statements.one("saga_of_dead_letter", Saga, dead_letter_id=dead_letter_id)
            assert saga is not None
            return saga


def _is_same(event: Event, draft: Mapping[str, Any]) -> bool:
    """Is this the same event published again, not another one with its ID?"""
    return (
        all(getattr(event, name) == draft[name] for name in _IDENTITY)
        and draft["occurred_at"] in (None, event.occurred_at)
        and codec.body_hash(draft["event_type"], draft["payload"].encode())
        == codec.body_hash(event.event_type, event.payload.encode())
    )
