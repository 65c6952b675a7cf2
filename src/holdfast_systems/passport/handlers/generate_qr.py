"""GENERATE_QR: draw the code that goes on the battery."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import msgspec

from holdfast import Context, JobFunction
from holdfast_systems.passport.handlers.deliver_webhook import DeliverWebhook
from holdfast_systems.passport.parts import About, Parts
from holdfast_systems.passport.qr import code_text_of, draw
from holdfast_systems.passport.receipt import read_receipt


class GenerateQr(msgspec.Struct, frozen=True):
    passport_version_id: UUID

    def about(self, _tenant: str) -> About:
        return "PassportVersion", self.passport_version_id


def define(
    parts: Parts, deliver_webhook: JobFunction[[DeliverWebhook], None]
) -> JobFunction[[GenerateQr], None]:
    @parts.hf.job(**parts.options("GENERATE_QR", priority=2))
    async def generate_qr(ctx: Context, payload: Any) -> None:
        tenant = ctx.tenant
        async with parts.step(ctx, GenerateQr, payload) as step:
            version_id = step.passport_version_id
            version = await parts.find_signed(tenant, version_id)
            text = code_text_of(read_receipt(version.receipt.encode())).text
            picture = await asyncio.to_thread(draw, text, border=parts.qr_border)
            async with ctx.completing() as connection:
                statements = parts.tables.on(connection)
                drawn = await statements.execute(
                    "draw_version", tenant=tenant, id=version_id, qr_text=text, qr_png=picture
                )
                details = {"bytes": len(picture), "drawn": bool(drawn)}
                await parts.audit_version(statements, ctx, "QR_GENERATED", version_id, details)
                following = deliver_webhook.options(connection=connection)
                job = await following.enqueue(DeliverWebhook(version_id))
                ctx.set_result({"passport_version_id": version_id, "next_job_id": job.id})

    typed: JobFunction[[GenerateQr], None] = generate_qr
    return typed
