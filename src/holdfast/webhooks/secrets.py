"""The secrets of subscriptions. The database stores them only in encrypted form."""

from __future__ import annotations

import asyncio
from typing import Any, Final
from uuid import UUID

import msgspec

from holdfast import Encrypted, Holdfast, SweepContext, Tables
from holdfast.webhooks.rows import NewSubscription

KIND: Final = "webhook_secrets"
FORGET_SECONDS: Final = 60.0


class _Row(msgspec.Struct, frozen=True):
    id: UUID
    tenant: str
    clear: str | None  # older than encryption
    key_id: str | None
    ciphertext: bytes | None


class SubscriptionSecrets:
    def __init__(self, hf: Holdfast, tables: Tables) -> None:
        self._hf = hf
        self._tables = tables
        self._forgot = ("", 0.0)
        hf.secrets.add(
            KIND,
            tables,
            counts="secrets_by_key",
            stale="stale_secrets",
            replace="reencrypt_secret",
        )

    async def add(self, connection: Any, subscription: NewSubscription) -> None:
        """Encrypt and store the subscription's new secret."""
        row_id = self._hf.new_id()
        about = (KIND, subscription.tenant, str(row_id))
        key_id, ciphertext = self._hf.secrets.encrypt(subscription.secret.encode(), *about)
        await self._tables.on(connection).execute(
            "add_secret",
            id=row_id,
            tenant=subscription.tenant,
            subscription_id=subscription.id,
            key_id=key_id,
            ciphertext=ciphertext,
        )

    async def expire(
        self, connection: Any, tenant: str, subscription_id: UUID, keep_seconds: float
    ) -> None:
        """Let the subscription's secrets expire after `keep_seconds`, or earlier if they do."""
        await self._tables.on(connection).execute(
            "expire_secrets",
            tenant=tenant,
            subscription_id=subscription_id,
            keep_seconds=keep_seconds,
        )

    async def of_subscription(self, connection: Any, subscription_id: UUID) -> list[str]:
        """Return the secrets that sign requests now, oldest first, or raise CannotDecrypt."""
        rows = await self._tables.on(connection).all(
            "secrets_of_subscription", _Row, subscription_id=subscription_id
        )
        return [self._read(row) for row in rows]

    def _read(self, row: _Row) -> str:
        if row.clear is not None:
            return row.clear
        assert row.key_id is not None
        assert row.ciphertext is not None
        encrypted = Encrypted(row.key_id, row.ciphertext)
        return self._hf.secrets.decrypt(encrypted, KIND, row.tenant, str(row.id)).decode()

    async def forget_expired(self, ctx: SweepContext) -> None:
        """Remove expired secrets. Each worker does this when it starts and then once a minute, even
        though its queue is woken more often."""
        now = asyncio.get_running_loop().time()
        worker_id, forgot_at = self._forgot
        if worker_id == ctx.worker_id and now - forgot_at < FORGET_SECONDS:
            return
        async with self._hf.transaction() as connection:
            await self._tables.on(connection).execute("forget_secrets")
        self._forgot = ctx.worker_id, now
