"""EXPIRE_UPLOADS: remove snapshots that nobody has sealed, and uploads that nothing was made of."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec

from holdfast import Context, JobFunction
from holdfast_systems.passport.limits import EXPIRE_SNAPSHOTS_MAX, OPEN_SECONDS_MAX
from holdfast_systems.passport.parts import Parts


class ExpireUploads(msgspec.Struct, frozen=True):
    def about(self, _tenant: str) -> None:
        return None


class _Expired(msgspec.Struct, frozen=True):
    id: UUID
    tenant: str


def define(parts: Parts) -> JobFunction[[ExpireUploads], None]:
    @parts.hf.job(**parts.options("EXPIRE_UPLOADS", priority=0))
    async def expire_uploads(ctx: Context, payload: Any) -> None:
        async with parts.step(ctx, ExpireUploads, payload):
            before = await parts.hf.now() - timedelta(seconds=OPEN_SECONDS_MAX)
            async with ctx.completing() as connection:
                statements = parts.tables.on(connection)
                expired = await statements.all(
                    "lock_expired_snapshots", _Expired, before=before, rows_max=EXPIRE_SNAPSHOTS_MAX
                )
                for snapshot in expired:
                    await statements.execute(
                        "remove_snapshot", tenant=snapshot.tenant, id=snapshot.id
                    )
                    about = ("Snapshot", snapshot.id)
                    await parts.audit(
                        statements, snapshot.tenant, "SNAPSHOT_EXPIRED", about, {}, ctx.job_id
                    )
                result: dict[str, Any] = {"expired": len(expired)}
                if len(expired) == EXPIRE_SNAPSHOTS_MAX:
                    following = expire_uploads.options(connection=connection)
                    result["next_job_id"] = (await following.enqueue(ExpireUploads())).id
                ctx.set_result(result)

    typed: JobFunction[[ExpireUploads], None] = expire_uploads
    return typed
