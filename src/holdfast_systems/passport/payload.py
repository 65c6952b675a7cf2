"""The payload of a passport: what it says."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

import msgspec

from holdfast_systems.passport.canonical import canonical, read_canonical, time_text
from holdfast_systems.passport.errors import ValidationError
from holdfast_systems.passport.receipt import Hash
from holdfast_systems.passport.schema import Cell


class RulesUsed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    hash: Hash


class Payload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: Literal["BPC-PASSPORT-1"]
    tenant: str
    passport_id: UUID
    passport_version_id: UUID
    issued_at: str
    rules: RulesUsed
    schema_version: str
    fields: dict[str, Cell]

    @property
    def data(self) -> bytes:
        return canonical(msgspec.to_builtins(self))


def read_payload(data: bytes) -> Payload:
    try:
        payload = msgspec.convert(read_canonical(data), Payload)
        issued_at = time_text(datetime.fromisoformat(payload.issued_at))
    except ValueError as error:
        raise ValidationError(f"not a valid passport: {error}") from None
    if payload.data != data or issued_at != payload.issued_at:
        raise ValidationError("the passport is not written in its only valid form")
    return payload
