"""A signed passport as files: the payload, the image of its QR code, and everything else."""

from __future__ import annotations

from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import msgspec

from holdfast_systems.passport.canonical import canonical, read_canonical, sha256
from holdfast_systems.passport.errors import ValidationError
from holdfast_systems.passport.limits import FILE_BYTES_MAX
from holdfast_systems.passport.read import read_limited
from holdfast_systems.passport.verifier import FactProof, Sealed

PAYLOAD = "passport.json"
RECEIPT = "receipt.json"
PICTURE = "qr.png"
LABEL = "label.pdf"


class ReceiptFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The public key is informational: a verifier uses the keys that it trusts."""

    receipt: dict[str, Any]
    receipt_hash: str
    key_id: str
    public_key: str
    signature: str
    qr_text: str | None
    proofs: tuple[FactProof, ...]


def write_files(folder: Path, sealed: Sealed) -> None:
    (folder / PAYLOAD).write_bytes(sealed.payload)
    (folder / RECEIPT).write_bytes(receipt_file(sealed))
    if sealed.qr_png is not None:
        (folder / PICTURE).write_bytes(sealed.qr_png)


def read_files(folder: Path) -> Sealed:
    """Read what `write_files` wrote.

    Reject every byte that it would write differently. Another program may read the first of two
    fields with the same name, for example.
    """
    content = read_limited(folder / RECEIPT, FILE_BYTES_MAX)
    try:
        found = msgspec.json.decode(content, type=ReceiptFile)
        signature = b64decode(found.signature, validate=True)
        public_key = b64decode(found.public_key, validate=True)
    except (ValueError, RecursionError) as error:
        raise ValidationError(f"{RECEIPT} can't be read: {error}") from None
    picture = folder / PICTURE
    sealed = Sealed(
        payload=read_limited(folder / PAYLOAD, FILE_BYTES_MAX),
        receipt=canonical(found.receipt),
        signature=signature,
        key_id=found.key_id,
        qr_text=found.qr_text,
        qr_png=read_limited(picture, FILE_BYTES_MAX) if picture.exists() else None,
        public_key=public_key,
        proofs=found.proofs,
    )
    if found.receipt_hash != sha256(sealed.receipt).hex():
        raise ValidationError(f"{RECEIPT}: receipt_hash is not the hash of the receipt")
    if receipt_file(sealed) != content:
        raise ValidationError(f"{RECEIPT} is not as write_files writes it")
    return sealed


def receipt_file(sealed: Sealed) -> bytes:
    if sealed.public_key is None:
        raise ValidationError("the passport was signed before public keys were stored with it")
    receipt = ReceiptFile(
        receipt=read_canonical(sealed.receipt),
        receipt_hash=sha256(sealed.receipt).hex(),
        key_id=sealed.key_id,
        public_key=b64encode(sealed.public_key).decode(),
        signature=b64encode(sealed.signature).decode(),
        qr_text=sealed.qr_text,
        proofs=sealed.proofs,
    )
    return msgspec.json.format(msgspec.json.encode(receipt), indent=2) + b"\n"
