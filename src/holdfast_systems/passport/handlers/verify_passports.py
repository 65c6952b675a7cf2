"""VERIFY_PASSPORTS: find passports that somebody has tampered with, once a day, page by page."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import msgspec

from holdfast import Context, JobFunction
from holdfast_systems.passport.errors import PassportError
from holdfast_systems.passport.limits import VERIFY_VERSIONS_MAX
from holdfast_systems.passport.parts import Parts
from holdfast_systems.passport.records import Version
from holdfast_systems.passport.tampering import find_problems

_logger = logging.getLogger("holdfast_systems.passport")


class VerifyPassports(msgspec.Struct, frozen=True):
    """`after` is the last version of the page before."""

    after: UUID = UUID(int=0)

    def about(self, _tenant: str) -> None:
        return None


def define(parts: Parts) -> JobFunction[[VerifyPassports], None]:
    @parts.hf.job(**parts.options("VERIFY_PASSPORTS", priority=0))
    async def verify_passports(ctx: Context, payload: Any) -> None:
        async with parts.step(ctx, VerifyPassports, payload) as step:
            async with parts.hf.transaction(read_only=True) as connection:
                versions = await parts.tables.on(connection).all(
                    "versions_after", Version, after=step.after, rows_max=VERIFY_VERSIONS_MAX
                )
            trusted = await asyncio.to_thread(_public_keys, parts)
            found = {}
            for version in versions:
                if problems := await _check(parts, version, trusted):
                    found[version.id] = (version.tenant, problems)
            async with ctx.completing() as connection:
                statements = parts.tables.on(connection)
                for version_id, (tenant, problems) in found.items():
                    about, details = ("PassportVersion", version_id), {"problems": problems}
                    await parts.audit(
                        statements, tenant, "TAMPERING_FOUND", about, details, ctx.job_id
                    )
                result: dict[str, Any] = {"verified": len(versions), "tampered": [*found]}
                if len(versions) == VERIFY_VERSIONS_MAX:
                    following = verify_passports.options(connection=connection)
                    job = await following.enqueue(VerifyPassports(versions[-1].id))
                    result["next_job_id"] = job.id
                ctx.set_result(result)
            for version_id, (tenant, problems) in found.items():
                _log(tenant, version_id, problems)

    typed: JobFunction[[VerifyPassports], None] = verify_passports
    return typed


def _public_keys(parts: Parts) -> Mapping[str, bytes]:
    try:
        return parts.read_keys().public_keys()
    except Exception:  # without keys, everything except the signatures is verified
        return {}


async def _check(parts: Parts, version: Version, trusted: Mapping[str, bytes]) -> list[str]:
    try:
        package, facts = await parts.read_inputs(
            version.tenant, version.snapshot_id, version.rules_id
        )
    except PassportError as error:
        return [str(error)]
    return await asyncio.to_thread(find_problems, version, package, facts, trusted)


def _log(tenant: str, version_id: UUID, problems: list[str]) -> None:
    event = "passport_tampering_found"
    fields = {"tenant": tenant, "passport_version_id": version_id, "problems": problems}
    _logger.error(event, extra={"event": event, "fields": fields})
