"""A signed passport as files: passport.json is the payload itself, receipt.json all the rest."""

from __future__ import annotations

from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import msgspec

from holdfast_systems.passport.canonical import canonical, read_canonical, sha256
from holdfast_systems.passport.errors import ValidationError
from holdfast_systems.passport.limits import FILE_BYTES_MAX
from holdfast_systems.passport.reading import read_limited
from holdfast_systems.passport.verifier import FactProof, Sealed

PAYLOAD = "passport.json"
RECEIPT = "receipt.json"


class ReceiptFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The public key is there to be looked at; a verifier is given the keys that it trusts."""

    receipt: dict[str, Any]
    receipt_hash: str
    key_id: str
    public_key: str
    signature: str
    qr_text: str | None
    proofs: tuple[FactProof, ...]


def write_files(folder: Path, sealed: Sealed, public_key: bytes) -> None:
    receipt = ReceiptFile(
        receipt=read_canonical(sealed.receipt),
        receipt_hash=sha256(sealed.receipt).hex(),
        key_id=sealed.key_id,
        public_key=b64encode(public_key).decode(),
        signature=b64encode(sealed.signature).decode(),
        qr_text=sealed.qr_text,
        proofs=sealed.proofs,
    )
    (folder / PAYLOAD).write_bytes(sealed.payload)
    text = msgspec.json.format(msgspec.json.encode(receipt), indent=2)
    (folder / RECEIPT).write_bytes(text + b"\n")


def read_files(folder: Path) -> Sealed:
    try:
        found = msgspec.json.decode(
            read_limited(folder / RECEIPT, FILE_BYTES_MAX), type=ReceiptFile
        )
        signature = b64decode(found.signature, validate=True)
    except (ValueError, RecursionError) as error:
        raise ValidationError(f"{RECEIPT} can't be read: {error}") from None
    return Sealed(
        payload=read_limited(folder / PAYLOAD, FILE_BYTES_MAX),
        receipt=canonical(found.receipt),
        signature=signature,
        key_id=found.key_id,
        qr_text=found.qr_text,
        proofs=found.proofs,
    )
