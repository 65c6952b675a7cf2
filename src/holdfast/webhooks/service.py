"""The API of webhooks: subscribe, publish, and inspect sagas, attempts and dead letters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
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
from holdfast.webhooks.events import log_attempt, log_dead_letter
from holdfast.webhooks.orchestrator import Jobs, Orchestrator
from holdfast.webhooks.policy import STANDARD, Policy
from holdfast.webhooks.presets import STANDARD_WEBHOOKS, Preset, by_name
from holdfast.webhooks.rows import Attempt, DeadLetter, Event, NewSubscription, Saga, Subscription
from holdfast.webhooks.sender import Report, open_client, send

T = TypeVar("T")

QUEUE: Final = "webhooks"
# Only its next orchestrator job moves a saga forward, so that job must not give up.
_NEVER_GIVE_UP: Final = Retry.exponential(max_attempts=1000, base=1, cap=60)
_IDENTITY: Final = ("tenant", "aggregate_type", "aggregate_id")
_AFTER_A_LOST_LEASE: Final = Retry.exponential(max_attempts=limits.LEASES_MAX, base=1, cap=10)


class _SubscriptionRow(msgspec.Struct, frozen=True):
    id: UUID
    tenant: str
    url: str
    event_types: str
    preset: str

    def subscription(self) -> Subscription:
        types = msgspec.json.decode(self.event_types, type=tuple[str, ...])
        return Subscription(**{**msgspec.structs.asdict(self), "event_types": types})


class Webhooks:
    """Deliver events to subscribers, as jobs of `hf`.

    Declares its tables and jobs on `hf`, so any worker of `hf` delivers.
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
        self._orchestrator = Orchestrator(hf, self._tables)
        self._deliverer = Deliverer(self._tables, self._presets)
        self._jobs = self._declare_jobs()

    def _declare_jobs(self) -> Jobs:
        hf, deliverer, orchestrator = self._hf, self._deliverer, self._orchestrator

        @hf.job(
            name="webhooks.deliver",
            queue=QUEUE,
            retry=_AFTER_A_LOST_LEASE,
            timeout_seconds=2 * limits.TIMEOUT_SECONDS_MAX,
        )
        async def deliver(ctx: Context, saga_id: UUID, attempt_no: int) -> None:
            try:
                delivery, report = await self._send(ctx.job_id)
                async with ctx.completing() as connection:
                    await deliverer.report(connection, ctx.job_id, saga_id, report)
                    await orchestrator.follow(connection, jobs, saga_id, attempt_no)
            except Exception as error:
                judged = ctx.judge(error)
                if judged.state.ended:
                    async with ctx.failing(error) as connection:
                        if await deliverer.report_failure(connection, ctx.job_id, judged.code):
                            await orchestrator.follow(connection, jobs, saga_id, attempt_no)
                raise
            log_attempt(ctx.job_id, delivery, report)

        @hf.job(name="webhooks.orchestrate", queue=QUEUE, retry=_NEVER_GIVE_UP)
        async def orchestrate(ctx: Context, saga_id: UUID, attempt_no: int) -> None:
            async with ctx.completing() as connection:
                died = await orchestrator.step(connection, jobs, ctx.job_id, saga_id, attempt_no)
            if died is not None:
                log_dead_letter(died)

        jobs = Jobs(orchestrate, deliver)
        return jobs

    async def _send(self, job_id: UUID) -> tuple[Delivery, Report]:
        async with self._hf.transaction(read_only=True) as connection:
            delivery, request = await self._deliverer.prepare(connection, job_id)
        policy = Policy.decode(delivery.policy)
        async with open_client(policy) as client:
            return delivery, await send(client, policy, delivery.url, request)

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
        chosen_secret = chosen.make_secret() if secret is None else secret
        chosen.check_secret(chosen_secret)
        subscription = NewSubscription(
            id=self._hf.new_id(),
            tenant=validation.tenant(tenant),
            url=url,
            event_types=validation.event_types(event_types),
            preset=preset,
            secret=chosen_secret,
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
            statements = self._tables.on(connection)
            known = await statements.one("find_subscription", _SubscriptionRow, id=subscription_id)
            if known is None:
                raise BadEndpoint(f"subscription {subscription_id} does not exist")
            policy = self._policies[self._preset(known.preset).name]
            self._check_url(known.url)
            await statements.execute("set_policy", id=subscription_id, policy=policy.encode())

    async def _record(self, subscription: NewSubscription) -> None:
        async with self._hf.transaction() as connection:
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
            await statements.execute(
                "insert_secret",
                id=self._hf.new_id(),
                subscription_id=subscription.id,
                secret=subscription.secret,
            )

    async def subscriptions(self, *, tenant: str = DEFAULT_TENANT) -> list[Subscription]:
        """List a tenant's subscriptions."""
        async with self._hf.transaction(read_only=True) as connection:
            return await self._subscriptions(connection, tenant)

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
        joined = self._hf.transaction() if connection is None else nullcontext(connection)
        async with joined as connection:
            return await self._publish(connection, draft)

    async def _publish(self, connection: Any, draft: dict[str, Any]) -> Event:
        statements = self._tables.on(connection)
        is_new = await statements.execute("insert_event", **draft)
        event = await statements.one("find_event", Event, id=draft["id"])
        if event is None or not (is_new or _is_same(event, draft)):
            raise EventConflict(draft["id"])
        if is_new:
            saga_ids = []
            for subscription in await self._subscriptions(connection, event.tenant):
                if subscription.wants(event.event_type):
                    saga_ids.append(self._hf.new_id())
                    await statements.execute(
                        "insert_saga",
                        id=saga_ids[-1],
                        tenant=event.tenant,
                        event_id=event.id,
                        subscription_id=subscription.id,
                    )
            await self._trigger(connection, event.tenant, saga_ids)
        return event

    async def _trigger(self, connection: Any, tenant: str, saga_ids: list[UUID]) -> None:
        """Have the orchestrator give each saga its first attempt."""
        calls = [self._jobs.orchestrate.call(saga_id, 1) for saga_id in saga_ids]
        await self._hf.for_tenant(tenant).enqueue_many(calls, connection=connection)

    async def _subscriptions(self, connection: Any, tenant: str) -> list[Subscription]:
        rows = await self._tables.on(connection).all(
            "subscriptions_of_tenant", _SubscriptionRow, tenant=validation.tenant(tenant)
        )
        return [row.subscription() for row in rows]

    async def sagas(self, *, event_id: UUID) -> list[Saga]:
        """List the sagas of an event, oldest first; requeued ones come last."""
        return await self._all("sagas_of_event", Saga, event_id=validation.id(event_id))

    async def attempts(self, saga_id: UUID) -> list[Attempt]:
        """List the attempts of a saga, oldest first."""
        return await self._all("attempts_of_saga", Attempt, saga_id=validation.id(saga_id))

    async def dead_letters(
        self, *, tenant: str = DEFAULT_TENANT, limit: int = 100
    ) -> list[DeadLetter]:
        """List a tenant's dead letters, newest first."""
        return await self._all(
            "dead_letters_of_tenant",
            DeadLetter,
            tenant=validation.tenant(tenant),
            rows_max=validation.rows_max(limit),
        )

    async def _all(self, statement: str, row: type[T], **parameters: Any) -> list[T]:
        async with self._hf.transaction(read_only=True) as connection:
            return await self._tables.on(connection).all(statement, row, **parameters)

    async def requeue(self, dead_letter_id: UUID) -> Saga:
        """Start a new saga for a dead letter's event; a second call returns the same saga."""
        validation.id(dead_letter_id)
        async with self._hf.transaction() as connection:
            statements = self._tables.on(connection)
            is_new = await statements.execute(
                "requeue_saga", id=self._hf.new_id(), dead_letter_id=dead_letter_id
            )
            saga = await statements.one("saga_of_dead_letter", Saga, dead_letter_id=dead_letter_id)
            if saga is None:
                raise DeadLetterNotFound(dead_letter_id)
            if is_new:
                await self._trigger(connection, saga.tenant, [saga.id])
            return saga


def _is_same(event: Event, draft: Mapping[str, Any]) -> bool:
    """Is this the same event published again, not another one with its ID?"""
    return (
        all(getattr(event, name) == draft[name] for name in _IDENTITY)
        and draft["occurred_at"] in (None, event.occurred_at)
        and codec.body_hash(draft["event_type"], draft["payload"].encode())
        == codec.body_hash(event.event_type, event.payload.encode())
    )
