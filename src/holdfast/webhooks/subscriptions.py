"""Subscriptions: create, find, change, disable, enable, delete, and give new secrets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec

from holdfast import Holdfast, Tables
from holdfast.webhooks import limits, validation
from holdfast.webhooks.endpoints import check_url
from holdfast.webhooks.errors import BadEndpoint, SubscriptionNotFound
from holdfast.webhooks.policy import Policy, read_policy
from holdfast.webhooks.presets import Preset
from holdfast.webhooks.rows import NewSubscription, Subscription
from holdfast.webhooks.secrets import SubscriptionSecrets

_FIRST: Final = UUID(int=0)


class Row(msgspec.Struct, frozen=True):
    id: UUID
    tenant: str
    url: str
    event_types: str
    preset: str
    policy: str
    created_at: datetime
    disabled_at: datetime | None
    disabled_because: str | None
    failing_since: datetime | None

    def subscription(self) -> Subscription:
        return Subscription(**self._shown())

    def with_secret(self, secret: str) -> NewSubscription:
        return NewSubscription(**self._shown(), secret=secret)

    def _shown(self) -> dict[str, Any]:
        shown = msgspec.structs.asdict(self)
        del shown["policy"]
        return shown | {"event_types": msgspec.json.decode(self.event_types, type=tuple[str, ...])}


class Subscriptions:
    """Each method gets the connection of an open transaction."""

    def __init__(
        self,
        hf: Holdfast,
        tables: Tables,
        presets: Mapping[str, Preset],
        policy: Policy,
    ) -> None:
        self._hf = hf
        self._tables = tables
        self._presets = presets
        self._policy = policy
        self._policies = {name: policy.under(preset) for name, preset in presets.items()}
        self.secrets = SubscriptionSecrets(hf, tables)

    async def add(
        self,
        connection: Any,
        url: str,
        event_types: Iterable[str],
        tenant: str,
        preset: str,
        secret: str | None,
    ) -> NewSubscription:
        chosen = self.preset(preset)
        self._check_url(url, self._policy)
        types = validation.event_types(event_types)
        made = chosen.new_secret(secret)
        statements = self._tables.on(connection)
        existing = await statements.value("count_subscriptions", tenant=tenant)
        if existing >= limits.SUBSCRIPTIONS_MAX:
            raise BadEndpoint(
                f"a tenant can have at most {limits.SUBSCRIPTIONS_MAX} subscriptions; delete some"
            )
        subscription_id = self._hf.new_id()
        await statements.execute(
            "insert_subscription",
            id=subscription_id,
            tenant=tenant,
            url=url,
            event_types=msgspec.json.encode(types).decode(),
            preset=preset,
            policy=self._policies[preset].encode(),
        )
        added = (await self.known(connection, subscription_id)).with_secret(made)
        await self.secrets.add(connection, added)
        return added

    def preset(self, name: str) -> Preset:
        if name not in self._presets:
            raise BadEndpoint(
                f"preset must be one of {', '.join(self._presets)}, not {name!r}; pass your own to"
                " Webhooks(hf, presets=[...])"
            )
        return self._presets[name]

    def _check_url(self, url: str, policy: Policy) -> None:
        check_url(
            url,
            https_only=policy.https_only,
            allow_private_addresses=policy.allow_private_addresses,
        )

    async def known(self, connection: Any, subscription_id: UUID, tenant: str | None = None) -> Row:
        """Find the subscription, or raise SubscriptionNotFound; with `tenant`, only its own."""
        found = await self._tables.on(connection).one(
            "find_subscription", Row, id=validation.id(subscription_id), tenant=tenant
        )
        if found is None:
            raise SubscriptionNotFound(subscription_id)
        return found

    async def list(
        self, connection: Any, tenant: str, limit: int, after: UUID | None
    ) -> list[Subscription]:
        rows = await self._tables.on(connection).all(
            "subscriptions_of_tenant", Row, tenant=tenant, after=after or _FIRST, rows_max=limit
        )
        return [row.subscription() for row in rows]

    async def change(
        self,
        connection: Any,
        subscription_id: UUID,
        tenant: str | None,
        url: str | None,
        event_types: Iterable[str] | None,
    ) -> Subscription:
        """Replace the URL, the event types, or both. The URL must suit this application's settings
        and those that the subscription was created with."""
        known = await self.known(connection, subscription_id, tenant)
        if url is not None:
            self._check_url(url, self._policy)
            self._check_url(url, read_policy(known.policy))
        types = None if event_types is None else validation.event_types(event_types)
        await self._tables.on(connection).execute(
            "change_subscription",
            id=subscription_id,
            url=known.url if url is None else url,
            event_types=known.event_types if types is None else msgspec.json.encode(types).decode(),
        )
        return (await self.known(connection, subscription_id)).subscription()

    async def adopt(self, connection: Any, subscription_id: UUID) -> None:
        known = await self.known(connection, subscription_id)
        policy = self._policies[self.preset(known.preset).name]
        self._check_url(known.url, self._policy)
        await self._tables.on(connection).execute(
            "set_policy", id=subscription_id, policy=policy.encode()
        )

    async def disable(
        self, connection: Any, subscription_id: UUID, tenant: str | None
    ) -> Subscription:
        await self.known(connection, subscription_id, tenant)
        await self._tables.on(connection).value("disable", id=subscription_id, because=None)
        return (await self.known(connection, subscription_id)).subscription()

    async def enable(
        self, connection: Any, subscription_id: UUID, tenant: str | None
    ) -> Subscription:
        await self.known(connection, subscription_id, tenant)
        await self._tables.on(connection).execute("enable", id=subscription_id)
        return (await self.known(connection, subscription_id)).subscription()

    async def delete(self, connection: Any, subscription_id: UUID, tenant: str | None) -> None:
        """Delete the subscription. Its secrets expire now, and are removed soon."""
        known = await self.known(connection, subscription_id, tenant)
        await self.secrets.expire(connection, known.tenant, subscription_id, keep_seconds=0)
        await self._tables.on(connection).execute("delete_subscription", id=subscription_id)

    async def rotate(
        self,
        connection: Any,
        subscription_id: UUID,
        tenant: str | None,
        keep_seconds: float,
        secret: str | None,
    ) -> NewSubscription:
        known = await self.known(connection, subscription_id, tenant)
        renewed = known.with_secret(self.preset(known.preset).new_secret(secret))
        await self.secrets.expire(connection, known.tenant, subscription_id, keep_seconds)
        await self.secrets.add(connection, renewed)
        return renewed
