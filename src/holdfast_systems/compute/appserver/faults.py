"""Switches that make the server fail on purpose, for demos and tests."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from fastapi import HTTPException

from holdfast_systems.environment import Variables, is_set, read_variables

_NUMBERS: Variables = {"FAULT_STATUS": ("status", int), "FAULT_DELAY_SEC": ("delay_seconds", float)}


@dataclass
class Faults:
    """`fail_once` answers the first request with 503; `status` answers all of them."""

    fail_once: bool = False
    status: int | None = None
    delay_seconds: float = 0.0
    broken_outputs: bool = False

    async def apply(self) -> None:
        if self.delay_seconds:
            await asyncio.sleep(self.delay_seconds)
        if self.fail_once:
            self.fail_once = False
            raise HTTPException(503, "FAIL_ONCE is set")
        if self.status is not None:
            raise HTTPException(self.status, "FAULT_STATUS is set")


def read_faults(environment: Mapping[str, str]) -> Faults:
    """Read FAIL_ONCE, FAULT_STATUS, FAULT_DELAY_SEC and FAULT_OUTPUTS."""
    return Faults(
        fail_once=is_set(environment, "FAIL_ONCE"),
        broken_outputs=is_set(environment, "FAULT_OUTPUTS"),
        **read_variables(environment, _NUMBERS),
    )
