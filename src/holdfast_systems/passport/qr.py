"""The text of a passport's QR code, and its image."""

from __future__ import annotations

import io
import re
from base64 import b32decode, b32encode
from uuid import UUID

import msgspec
import segno

from holdfast_systems.passport.errors import QrEncodeFailed, ValidationError
from holdfast_systems.passport.receipt import Receipt

SCALE = 10
# Readers need the quiet zone: without it, they don't find a code on a dark page.
BORDER = 4
DOTS_PER_INCH = 300

_HASH = r"[A-Z2-7]{52}"
_TEXT = re.compile(rf"BPC1\|pv=([0-9a-f-]{{36}})\|ph=({_HASH})\|pr=({_HASH})\|rh=({_HASH})")


class CodeText(msgspec.Struct, frozen=True):
    """What the code says: the version, and the hashes of its payload, facts and receipt."""

    passport_version_id: UUID
    payload_hash: bytes
    proof_root: bytes
    receipt_hash: bytes

    @property
    def text(self) -> str:
        hashes = (self.payload_hash, self.proof_root, self.receipt_hash)
        payload, root, receipt = (b32encode(each).decode().rstrip("=") for each in hashes)
        return f"BPC1|pv={self.passport_version_id}|ph={payload}|pr={root}|rh={receipt}"


def code_text_of(receipt: Receipt) -> CodeText:
    return CodeText(
        receipt.passport_version_id,
        bytes.fromhex(receipt.payload_hash),
        bytes.fromhex(receipt.proof_root),
        receipt.hash,
    )


def read_code_text(text: str) -> CodeText:
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ValidationError("not the text of a passport's QR code")
    payload, root, receipt = (b32decode(each + "====") for each in match.groups()[1:])
    try:
        found = CodeText(UUID(match[1]), payload, root, receipt)
    except ValueError:
        raise ValidationError("the QR code does not name a passport version") from None
    if found.text != text:
        raise ValidationError("the QR code's text is not written in its only valid form")
    return found


def draw(text: str, *, scale: int = SCALE, border: int = BORDER) -> bytes:
    """Draw a code of level M as a PNG, black on white."""
    picture = io.BytesIO()
    try:
        make_code(text).save(picture, kind="png", scale=scale, border=border, dpi=DOTS_PER_INCH)
    except ValueError as error:
        raise QrEncodeFailed(f"can't draw the QR code: {error}") from None
    return picture.getvalue()


def make_code(text: str) -> segno.QRCode:
    try:
        return segno.make_qr(text, error="m", boost_error=False)
    except ValueError as error:
        raise QrEncodeFailed(f"can't make the QR code: {error}") from None
