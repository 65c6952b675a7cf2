"""COMPILE_PASSPORT: make a passport version from a sealed snapshot and published rules."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast import Context, JobFunction, Statements
from holdfast_systems.passport.compiler import Compiled, Order, compile_version
from holdfast_systems.passport.handlers.sign_passport import SignPassport
from holdfast_systems.passport.parts import Parts


def define(
    parts: Parts, sign_passport: JobFunction[[SignPassport], None]
) -> JobFunction[[Order], None]:
    @parts.hf.job(**parts.options("COMPILE_PASSPORT", priority=1))
    async def compile_passport(ctx: Context, payload: Any) -> None:
        tenant = ctx.tenant
        async with parts.step(ctx, Order, payload) as order:
            package, facts = await parts.read_inputs(tenant, order.snapshot_id, order.rules_id)
            compiled = await asyncio.to_thread(compile_version, tenant, order, package, facts)
            version_id = compiled.receipt.passport_version_id
            async with ctx.completing() as connection:
                statements = parts.tables.on(connection)
                created = await _store(statements, tenant, order, compiled)
                details = {"payload_hash": compiled.receipt.payload_hash if created else None}
                await parts.audit_version(statements, ctx, "PASSPORT_COMPILED", version_id, details)
                following = sign_passport.options(connection=connection)
                job = await following.enqueue(SignPassport(version_id))
                ctx.set_result({"passport_version_id": version_id, "next_job_id": job.id})

    typed: JobFunction[[Order], None] = compile_passport
    return typed


async def _store(statements: Statements, tenant: str, order: Order, compiled: Compiled) -> bool:
    """Store the version unless it exists: ordering it again changes nothing."""
    receipt = compiled.receipt
    return bool(
        await statements.execute(
            "insert_version",
            id=receipt.passport_version_id,
            tenant=tenant,
            passport_id=order.passport_id,
            snapshot_id=order.snapshot_id,
            rules_id=order.rules_id,
            build_id=order.build_id,
            issued_at=order.issued_at,
            payload=compiled.payload.decode(),
            payload_hash=receipt.payload_hash,
            proof_root=receipt.proof_root,
            receipt=receipt.data.decode(),
            receipt_hash=receipt.hash.hex(),
        )
    )
