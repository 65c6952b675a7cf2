"""DELIVER_WEBHOOK: publish that a passport was signed. Webhooks deliver the event."""

from __future__ import annotations

from uuid import UUID

import msgspec

from holdfast import Context, JobFunction
from holdfast_systems.passport.canonical import id_of
from holdfast_systems.passport.parts import Parts

EVENT_TYPE = "PASSPORT_SIGNED"


class DeliverWebhook(msgspec.Struct, frozen=True):
    passport_version_id: UUID


def define(parts: Parts) -> JobFunction[[DeliverWebhook], None]:
    @parts.hf.job(**parts.options("DELIVER_WEBHOOK", priority=3))
    async def deliver_webhook(ctx: Context, payload: DeliverWebhook) -> None:
        tenant, version_id = ctx.tenant, payload.passport_version_id
        async with parts.step(ctx, ("PassportVersion", version_id)):
            version = await parts.find_signed(tenant, version_id)
            async with ctx.completing() as connection:
                # The id is derived from the version, so that a passport has one such event.
                event = await parts.webhooks.publish(
                    EVENT_TYPE,
                    {"passport_version_id": str(version_id), "key_id": version.key_id},
                    tenant=tenant,
                    id=id_of("event", EVENT_TYPE, str(version_id)),
                    aggregate_type="PassportVersion",
                    aggregate_id=str(version_id),
                    occurred_at=version.signed_at,
                    connection=connection,
                )
                statements, details = parts.tables.on(connection), {"event_id": event.id}
                await parts.audit_version(statements, ctx, "WEBHOOK_PUBLISHED", version_id, details)
                ctx.set_result({"passport_version_id": version_id, "event_id": event.id})

    return deliver_webhook
