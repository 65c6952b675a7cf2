"""Switches that let the server fail on purpose: for demonstrations and tests."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from fastapi import HTTPException

from holdfast_systems.environment import is_set


@dataclass
class Faults:
    """`fail_once` answers the first request with 503, `status` answers all of them with itself."""

    fail_once: bool = False
    status: int | None = None
    delay_seconds: float = 0.0
    broken_outputs: bool = False

    async def happen(self) -> None:
        if self.delay_seconds:
            await asyncio.sleep(self.delay_seconds)
        if self.fail_once:
            self.fail_once = False
            raise HTTPException(503, "this server fails once, as it was told")
        if self.status is not None:
            raise HTTPException(self.status, "this server fails, as it was told")


def read_faults(environment: Mapping[str, str]) -> Faults:
    """Read FAIL_ONCE, FAULT_STATUS, FAULT_DELAY_SEC and FAULT_OUTPUTS."""
    status = environment.get("FAULT_STATUS")
    return Faults(
        fail_once=is_set(environment, "FAIL_ONCE"),
        status=int(status) if status else None,
        delay_seconds=float(environment.get("FAULT_DELAY_SEC") or 0),
        broken_outputs=is_set(environment, "FAULT_OUTPUTS"),
    )
