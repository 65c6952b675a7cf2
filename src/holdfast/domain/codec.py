"""Arguments, results and progress as JSON that every database can store.

A value that can't be stored exactly is rejected. For results and progress, the setting
`unstorable_results` can replace it instead.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from holdfast.domain.encrypted_jobs import ENCRYPTED, Encrypt, is_encrypted
from holdfast.domain.errors import BadArguments, PayloadTooLarge, UnstorableValue
from holdfast.domain.limits import PREVIEW_BYTES_MAX, PROGRESS_BYTES_MAX
from holdfast.domain.storable import Walk, is_plain, too_large
from holdfast.domain.texts import storable_text

_ENCODER: Final = msgspec.json.Encoder()
_CANONICAL: Final = msgspec.json.Encoder(order="deterministic")
_DECODER: Final = msgspec.json.Decoder()
_RESERVED: Final = "$encrypted is reserved for encrypted values"


def encode_arguments(values: dict[str, object], *, bytes_max: int) -> bytes:
    """Encode arguments exactly, or raise BadArguments with the place and the reason."""
    data = _encode_plain(values, bytes_max)
    if data is None:
        data = _ENCODER.encode(Walk(nodes_max=bytes_max).storable(values))
    if len(data) > bytes_max:
        raise PayloadTooLarge(too_large(str(len(data)), bytes_max))
    if data.startswith(ENCRYPTED):
        raise BadArguments(f"the arguments can't be stored: {_RESERVED}")
    return data


@dataclass(frozen=True, slots=True)
class Results:
    """How an app stores results and progress. With `replaces`, an object that JSON can't hold
    becomes its repr, and a value that is too large becomes a preview. `dump` turns the result of
    one handler into JSON values. `encrypt` encrypts the result of one job."""

    bytes_max: int
    replaces: bool = False
    dump: Callable[[Any, Results], Any] | None = None
    encrypt: Encrypt | None = None

    def encode(self, value: object) -> bytes:
        if self.encrypt is not None:
            return self.encrypt("result", replace(self, encrypt=None).encode(value))
        if value is None:
            return b"null"
        if self.dump is not None:
            value = self.dump(value, replace(self, dump=None))
        return self._encode(value, self.bytes_max, "result")

    def encode_progress(self, value: object) -> bytes:
        return self._encode(value, PROGRESS_BYTES_MAX, "progress")

    def _encode(self, value: object, bytes_max: int, noun: str) -> bytes:
        data = _encode_plain(value, bytes_max)
        if data is None:
            walk = Walk(nodes_max=bytes_max, for_result=True, lenient=self.replaces)
            try:
                data = _ENCODER.encode(walk.storable(value))
            except PayloadTooLarge:
                raise _too_large(noun, bytes_max) from None
            except BadArguments as error:
                raise UnstorableValue(noun, str(error)) from None
        if data.startswith(ENCRYPTED) and is_encrypted(data):
            raise UnstorableValue(noun, _RESERVED)
        if len(data) <= bytes_max:
            return data
        if not self.replaces:
            raise _too_large(noun, bytes_max)
        return _preview(data, bytes_max)


def decode(data: bytes) -> Any:
    """Decode a stored value; if it is not JSON, as text: one bad record must not break a page."""
    try:
        return _DECODER.decode(data)
    except (ValueError, RecursionError):
        text = bytes(data).decode("utf-8", "replace")
        return storable_text(text, len(text))


def body_hash(name: str, arguments: bytes) -> bytes:
    """Hash a job's name and arguments, regardless of the order of keys.

    1 and 1.0 differ, because a handler can tell them apart. An omitted argument differs from one
    that equals its default, because the default may change.
    """
    try:
        canonical = _CANONICAL.encode(_DECODER.decode(arguments))
    except (ValueError, RecursionError) as error:
        raise BadArguments(f"{name}: the arguments are not valid JSON: {error}") from error
    return hashlib.sha256(name.encode() + b"\0" + canonical).digest()


def _encode_plain(value: object, nodes_max: int) -> bytes | None:
    """Encode what msgspec stores exactly, or return None: the value needs a closer look."""
    try:
        if not is_plain(value, nodes_max):
            return None
        data = _ENCODER.encode(value)
    except Exception:
        # Lone surrogates, or a dict that another thread is changing.
        return None
    return None if b"\\u0000" in data else data


def _too_large(noun: str, bytes_max: int) -> UnstorableValue:
    reason = f"it is larger than {bytes_max} bytes as JSON; store it elsewhere and keep a reference"
    return UnstorableValue(noun, reason)


def _preview(data: bytes, bytes_max: int) -> bytes:
    # Escapes can double the preview, and the notice around it takes space too.
    preview = data[: min(PREVIEW_BYTES_MAX, bytes_max // 4)].decode("utf-8", "ignore")
    notice = {"holdfast": "result too large", "bytes": len(data), "preview": preview}
    return _ENCODER.encode(notice)
