"""DELIVER_WEBHOOK: publish that a passport was signed; the webhooks deliver it."""

from __future__ import annotations

from uuid import UUID

import msgspec

from holdfast import Context, JobFunction
from holdfast_systems.passport.canonical import id_of
from holdfast_systems.passport.parts import Parts, tenant_of

EVENT_TYPE = "PASSPORT_SIGNED"


class DeliverWebhook(msgspec.Struct, frozen=True):
    passport_version_id: UUID


def define(parts: Parts) -> JobFunction[[DeliverWebhook]]:
    @parts.hf.job(**parts.options("DELIVER_WEBHOOK", priority=3))
    async def deliver_webhook(ctx: Context, payload: DeliverWebhook) -> None:
        tenant, version_id = tenant_of(ctx), payload.passport_version_id
        version = await parts.find_signed(tenant, version_id)
        async with ctx.completing() as connection:
            # The id follows from the version, so that one signature is one event.
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
            about = ("PassportVersion", version_id)
            statements = parts.tables.on(connection)
            told = {"event_id": event.id}
            await parts.audit(statements, tenant, "WEBHOOK_PUBLISHED", about, told, ctx.job_id)
            ctx.set_result({"passport_version_id": version_id, "event_id": event.id})

    return deliver_webhook
