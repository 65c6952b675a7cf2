"""SIGN_PASSPORT: sign the hash of a version's receipt."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import msgspec

from holdfast import Context, JobFunction
from holdfast_systems.passport.handlers.generate_qr import GenerateQr
from holdfast_systems.passport.parts import About, Parts


class SignPassport(msgspec.Struct, frozen=True):
    passport_version_id: UUID

    def about(self, _tenant: str) -> About:
        return "PassportVersion", self.passport_version_id


def define(
    parts: Parts, generate_qr: JobFunction[[GenerateQr], None]
) -> JobFunction[[SignPassport], None]:
    @parts.hf.job(**parts.options("SIGN_PASSPORT", priority=1))
    async def sign_passport(ctx: Context, payload: Any) -> None:
        tenant = ctx.tenant
        async with parts.step(ctx, SignPassport, payload) as step:
            version_id = step.passport_version_id
            version = await parts.find_version(tenant, version_id)
            keys = await asyncio.to_thread(parts.read_keys)
            signature = keys.sign(bytes.fromhex(version.receipt_hash))
            async with ctx.completing() as connection:
                statements = parts.tables.on(connection)
                # A version that is signed keeps its signature, even if the active key changed.
                signed = await statements.execute(
                    "sign_version",
                    tenant=tenant,
                    id=version_id,
                    key_id=signature.key_id,
                    signature=signature.value,
                    public_key=signature.public_key,
                )
                key_id = signature.key_id if signed else version.key_id
                details = {"key_id": key_id, "signed": bool(signed)}
                await parts.audit_version(statements, ctx, "PASSPORT_SIGNED", version_id, details)
                following = generate_qr.options(connection=connection)
                job = await following.enqueue(GenerateQr(version_id))
                ctx.set_result({"passport_version_id": version_id, "next_job_id": job.id})

    typed: JobFunction[[SignPassport], None] = sign_passport
    return typed
