"""DELIVER_WEBHOOK: publish that a passport was signed. Webhooks deliver the event."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec

from holdfast import Context, JobFunction
from holdfast_systems.passport.canonical import id_of
from holdfast_systems.passport.parts import About, Parts

EVENT_TYPE = "PASSPORT_SIGNED"


class DeliverWebhook(msgspec.Struct, frozen=True):
    passport_version_id: UUID

    def about(self, _tenant: str) -> About:
        return "PassportVersion", self.passport_version_id


def event_id_of(version_id: UUID) -> UUID:
    """Derive the event's id from the version, so that a passport has one such event."""
    return id_of("event", EVENT_TYPE, str(version_id))


def define(parts: Parts) -> JobFunction[[DeliverWebhook], None]:
    @parts.hf.job(**parts.options("DELIVER_WEBHOOK", priority=3))
    async def deliver_webhook(ctx: Context, payload: Any) -> None:
        tenant = ctx.tenant
        async with parts.step(ctx, DeliverWebhook, payload) as step:
            version_id = step.passport_version_id
            version = await parts.find_signed(tenant, version_id)
            async with ctx.completing() as connection:
                event = await parts.webhooks.publish(
                    EVENT_TYPE,
                    {"passport_version_id": str(version_id), "key_id": version.key_id},
                    tenant=tenant,
                    id=event_id_of(version_id),
                    aggregate_type="PassportVersion",
                    aggregate_id=str(version_id),
                    occurred_at=version.signed_at,
                    connection=connection,
                )
                statements, details = parts.tables.on(connection), {"event_id": event.id}
                await parts.audit_version(statements, ctx, "WEBHOOK_PUBLISHED", version_id, details)
                ctx.set_result({"passport_version_id": version_id, "event_id": event.id})

    typed: JobFunction[[DeliverWebhook], None] = deliver_webhook
    return typed
