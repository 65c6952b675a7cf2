"""The receipt: a small document that binds a passport to everything it was made from."""

from __future__ import annotations

import re
from typing import Annotated, Literal
from uuid import UUID

import msgspec

from holdfast_systems.passport.canonical import canonical, id_of, read_canonical, sha256
from holdfast_systems.passport.errors import ValidationError

_HASH = r"^[0-9a-f]{64}\Z"  # unlike $, \Z does not match before a newline
Hash = Annotated[str, msgspec.Meta(pattern=_HASH)]


def is_hash(text: str) -> bool:
    return re.match(_HASH, text) is not None


def version_id(
    tenant: str, passport_id: UUID, snapshot_id: UUID, rules_id: UUID, build_id: str
) -> UUID:
    """Derive the id of a version. The time of issue is not part of it."""
    ids = (str(passport_id), str(snapshot_id), str(rules_id))
    return id_of("passport version", tenant, *ids, build_id)


class Receipt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hashes are hexadecimal. `facts` is the size of the tree, which proofs depend on."""

    format: Literal["BPC-RECEIPT-1"] = "BPC-RECEIPT-1"
    tenant: str
    passport_id: UUID
    passport_version_id: UUID
    snapshot_id: UUID
    rules_id: UUID
    rules_hash: Hash
    build_id: str
    payload_hash: Hash
    proof_root: Hash
    facts: Annotated[int, msgspec.Meta(ge=1)]

    @property
    def data(self) -> bytes:
        return canonical(msgspec.to_builtins(self))

    @property
    def hash(self) -> bytes:
        """The hash that is signed."""
        return sha256(self.data)


def read_receipt(data: bytes) -> Receipt:
    try:
        receipt = msgspec.convert(read_canonical(data), Receipt)
    except msgspec.ValidationError as error:
        raise ValidationError(f"not a valid receipt: {error}") from None
    if receipt.data != data:
        raise ValidationError("the receipt is not written in its only valid form")
    return receipt
