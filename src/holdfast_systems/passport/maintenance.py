"""The maintenance jobs, which go before all others. Workers enqueue each of them once a day."""

from __future__ import annotations

from typing import Final

from holdfast import SweepContext
from holdfast_systems.passport.handlers import expire_uploads, verify_passports
from holdfast_systems.passport.handlers.expire_uploads import ExpireUploads
from holdfast_systems.passport.handlers.verify_passports import VerifyPassports
from holdfast_systems.passport.parts import Parts

LOOK_SECONDS: Final = 3600.0


def define(parts: Parts) -> None:
    verify = verify_passports.define(parts)
    expire = expire_uploads.define(parts)

    @parts.hf.sweep(queue=parts.queue, every_seconds=LOOK_SECONDS)
    async def passport_maintenance(_ctx: SweepContext) -> None:
        day = (await parts.hf.now()).date().isoformat()
        key = f"passport {parts.queue} verify {day}"
        await verify.options(idempotency_key=key).enqueue(VerifyPassports())
        key = f"passport {parts.queue} expire {day}"
        await expire.options(idempotency_key=key).enqueue(ExpireUploads())
