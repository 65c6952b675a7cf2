"""Arguments and results as JSON that every database can store.

Arguments are refused when they can't be stored exactly. Results, progress and error texts are made
storable instead: by the time they exist, the work is done and must be recorded.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec

from holdfast.domain.errors import BadArguments, PayloadTooLarge
from holdfast.domain.limits import PREVIEW_BYTES_MAX, PROGRESS_BYTES_MAX
from holdfast.domain.storable import Walk, is_plain, too_large
from holdfast.domain.texts import check_name, error_text, storable_text, type_name

__all__ = [
    "body_hash",
    "check_name",
    "decode",
    "encode_arguments",
    "encode_progress",
    "encode_result",
    "error_text",
    "storable_text",
    "type_name",
]

_ENCODER: Final = msgspec.json.Encoder()
_CANONICAL: Final = msgspec.json.Encoder(order="deterministic")
_DECODER: Final = msgspec.json.Decoder()


def encode_arguments(values: dict[str, object], *, bytes_max: int) -> bytes:
    """Encode arguments exactly, or raise BadArguments that names the place and the reason."""
    data = _encode_plain(values, bytes_max)
    if data is None:
        data = _ENCODER.encode(Walk(lenient=False, nodes_max=bytes_max).storable(values))
    if len(data) > bytes_max:
        raise PayloadTooLarge(too_large(str(len(data)), bytes_max))
    return data


def encode_result(value: object, *, bytes_max: int) -> bytes:
    """Encode anything: what JSON can't hold is replaced, what is too large gives a preview."""
    if value is None:
        return b"null"
    data = _encode_plain(value, bytes_max)
    if data is None:
        data = _ENCODER.encode(Walk(lenient=True, nodes_max=bytes_max).storable(value))
    return data if len(data) <= bytes_max else _preview(data, bytes_max)


def encode_progress(value: object) -> bytes:
    return encode_result(value, bytes_max=PROGRESS_BYTES_MAX)


def decode(data: bytes) -> Any:
    """Give back the stored value, or its text where another program stored no readable JSON.

    It never raises, so that one bad record can't hide the page that it is on.
    """
    try:
        return _DECODER.decode(data)
    except (ValueError, RecursionError):
        text = bytes(data).decode("utf-8", "replace")
        return storable_text(text, len(text))


def body_hash(name: str, arguments: bytes) -> bytes:
    """Hash a job's name and arguments, whatever the order of keys at any depth.

    Numbers count as they are written: 1 and 1.0 differ, as a handler can tell them apart. An
    argument that is left out differs from one that equals its default, which may change.
    """
    try:
        canonical = _CANONICAL.encode(_DECODER.decode(arguments))
    except (ValueError, RecursionError) as error:
        raise BadArguments(f"{name}: the arguments are not readable JSON: {error}") from error
    return hashlib.sha256(name.encode() + b"\0" + canonical).digest()


def _encode_plain(value: object, nodes_max: int) -> bytes | None:
    """Encode what msgspec stores exactly as it is; None sends the caller on the careful way."""
    try:
        if not is_plain(value, nodes_max):
            return None
        data = _ENCODER.encode(value)
    except Exception:
        # Lone surrogates, or a dict that another thread changes meanwhile.
        return None
    return None if b"\\u0000" in data else data


def _preview(data: bytes, bytes_max: int) -> bytes:
    # Escapes can double the preview, and the notice around it takes some bytes, too.
    preview = data[: min(PREVIEW_BYTES_MAX, bytes_max // 4)].decode("utf-8", "ignore")
    notice = {"holdfast": "result too large", "bytes": len(data), "preview": preview}
    return _ENCODER.encode(notice)
