"""Files inside a job's result: pictures, PDFs, XML, CSV and texts.

A file is an object with a media type and its data, a `data:` URL, or the base64 of bytes that begin
like a known format. Its media type is believed only if its bytes agree. What is not on the list is
offered as a download without a type, so that no browser runs it.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, Final, Literal
from urllib.parse import unquote_to_bytes

from holdfast.api.exact_json import pointer_to
from holdfast.dashboard.limits import (
    RESULT_FILE_BYTES_MAX,
    RESULT_FILES_MAX,
    RESULT_LOOK_MAX,
)

Kind = Literal["picture", "pdf", "xml", "csv", "text", "other"]

OTHER: Final = "application/octet-stream"
_KINDS: Final[Mapping[str, Kind]] = {
    "image/png": "picture",
    "image/jpeg": "picture",
    "image/gif": "picture",
    "image/webp": "picture",
    "image/svg+xml": "picture",
    "application/pdf": "pdf",
    "application/xml": "xml",
    "text/xml": "xml",
    "text/csv": "csv",
    "text/plain": "text",
    "application/json": "text",
    OTHER: "other",
}
_ENDINGS: Final = {
    "image/png": "png",
    "image/jpeg": "jpg",
    "image/gif": "gif",
    "image/webp": "webp",
    "image/svg+xml": "svg",
    "application/pdf": "pdf",
    "application/xml": "xml",
    "text/xml": "xml",
    "text/csv": "csv",
    "text/plain": "txt",
    "application/json": "json",
    OTHER: "bin",
}
_TEXTUAL: Final = frozenset({"xml", "csv", "text"})
_MEDIA_TYPE_NAMES: Final = ("media_type", "content_type", "mime_type", "mediaType", "contentType")
_DATA_NAMES: Final = ("data", "content", "base64", "body")
_FILE_NAMES: Final = ("filename", "file_name", "name")
_DATA_URL: Final = re.compile(r"data:([^;,]{0,100})((?:;[^;,]{0,100}){0,5}),", re.I)
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_UNSAFE_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._-]+")
_BEGINS: Final = {  # in base64, and as bytes
    "iVBORw0KGgo": ("image/png", b"\x89PNG\r\n\x1a\n"),
    "/9j/": ("image/jpeg", b"\xff\xd8\xff"),
    "R0lGOD": ("image/gif", b"GIF8"),
    "UklGR": ("image/webp", b"RIFF"),
    "JVBERi0": ("application/pdf", b"%PDF-"),
}
_SNIFFED_CHARS_MIN: Final = 40  # shorter texts are words, not files
_NAME_CHARS_MAX: Final = 80
_HEAD_BYTES: Final = 1000


@dataclass(frozen=True)
class File:
    """`number` is its place among the files of the result, and `pointer` its place in the JSON."""

    number: int
    pointer: str
    media_type: str
    name: str
    data: bytes

    @property
    def kind(self) -> Kind:
        return _KINDS[self.media_type]

    @cached_property
    def text(self) -> str:
        return self.data.decode("utf-8-sig", "replace")


def find_files(result: Any) -> list[File]:
    """The files of a result, in order."""
    found = (file for pointer, value in _values(result) if (file := _file_in(value, pointer)))
    return [
        File(number, pointer, media_type, name or f"{number}.{_ENDINGS[media_type]}", data)
        for number, (pointer, media_type, name, data) in enumerate(islice(found, RESULT_FILES_MAX))
    ]


def _values(result: Any) -> Iterator[tuple[str, Any]]:
    """A result, and the values in it, down to the first file on each way."""
    left: list[tuple[tuple[str | int, ...], Any]] = [((), result)]
    for _ in range(RESULT_LOOK_MAX):
        if not left:
            return
        path, value = left.pop()
        yield pointer_to(*path), value
        if isinstance(value, dict) and not _described(value):
            left.extend(((*path, name), inner) for name, inner in reversed(value.items()))
        elif isinstance(value, list):
            space = RESULT_LOOK_MAX - len(left)
            left.extend(
                ((*path, index), value[index]) for index in reversed(range(len(value[:space])))
            )


_Found = tuple[str, str, str, bytes]


def _file_in(value: Any, pointer: str) -> _Found | None:
    if isinstance(value, dict):
        return _of_object(value, pointer)
    if not isinstance(value, str) or len(value) < _SNIFFED_CHARS_MIN:
        return None
    if value[:5].lower() == "data:":
        return _of_url(value, pointer)
    return _of_text(value, pointer)


def _described(value: dict[str, Any]) -> tuple[str, str] | None:
    """The media type and the data of an object that is a file."""
    media_type = next((value[name] for name in _MEDIA_TYPE_NAMES if name in value), None)
    data = next((value[name] for name in _DATA_NAMES if name in value), None)
    if isinstance(media_type, str) and isinstance(data, str) and "/" in media_type:
        return media_type, data
    return None


def _of_object(value: dict[str, Any], pointer: str) -> _Found | None:
    described = _described(value)
    if described is None:
        return None
    media_type, text = described
    is_base64 = value.get("encoding") == "base64" or "base64" in value
    data = _bytes_of(text, _plain(media_type), is_base64=is_base64)
    if data is None:
        return None
    name = next((value[name] for name in _FILE_NAMES if isinstance(value.get(name), str)), "")
    return pointer, _believed(media_type, data), _safe_name(name), data


def _bytes_of(text: str, media_type: str, *, is_base64: bool) -> bytes | None:
    """The data of a file. That of a text may be the text itself, or base64."""
    is_text = _KINDS.get(media_type) in _TEXTUAL or media_type == "image/svg+xml"
    if is_text and not is_base64 and text.lstrip()[:1] in ("<", "{", "["):
        return _limited(text.encode("utf-8", "replace"))
    decoded = _decoded(text)
    if is_text and not is_base64 and (decoded is None or not _is_utf8(decoded)):
        return _limited(text.encode("utf-8", "replace"))
    return decoded


def _of_url(url: str, pointer: str) -> _Found | None:
    found = _DATA_URL.match(url)
    if found is None:
        return None
    rest = url[found.end() :]
    is_base64 = found[2].lower().endswith(";base64")
    data = _decoded(rest) if is_base64 else _limited(unquote_to_bytes(rest))
    return None if data is None else (pointer, _believed(found[1], data), "", data)


def _of_text(text: str, pointer: str) -> _Found | None:
    """Bytes in base64 that begin like a known format, or XML."""
    for begin, (media_type, _) in _BEGINS.items():
        if text.startswith(begin):
            data = _decoded(text)
            if data is None or _believed(media_type, data) != media_type:
                return None
            return pointer, media_type, "", data
    if text.startswith(("<?xml", "<svg")):
        data = text.encode("utf-8", "replace")
        media_type = "image/svg+xml" if _is_svg(data) else "application/xml"
        return (pointer, media_type, "", data) if _limited(data) else None
    return None


def _decoded(text: str) -> bytes | None:
    """The bytes of a text in base64; None if it is not, or too large."""
    packed = "".join(text.split()) if any(each in text for each in "\r\n \t") else text
    if len(packed) > RESULT_FILE_BYTES_MAX * 4 // 3 + 4 or not _BASE64.fullmatch(packed):
        return None
    try:
        return b64decode(packed, validate=True)
    except (binascii.Error, ValueError):
        return None


def _limited(data: bytes) -> bytes | None:
    return data if len(data) <= RESULT_FILE_BYTES_MAX else None


def _plain(media_type: str) -> str:
    return media_type.partition(";")[0].strip().lower()


def _believed(media_type: str, data: bytes) -> str:
    """The media type if the data can be of it; otherwise one that no browser opens."""
    plain = _plain(media_type)
    kind = _KINDS.get(plain)
    if kind in _TEXTUAL:
        return plain if _is_utf8(data) else OTHER
    if plain == "image/svg+xml":
        return plain if _is_svg(data) else OTHER
    for known, begin in _BEGINS.values():
        if plain == known and data.startswith(begin):
            is_other = known == "image/webp" and data[8:12] != b"WEBP"
            return OTHER if is_other else plain
    return OTHER


def _is_svg(data: bytes) -> bool:
    return b"<svg" in data[:_HEAD_BYTES] and _is_utf8(data)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _safe_name(name: str) -> str:
    """A name for the download that no shell, header or file system reads in its own way."""
    return _UNSAFE_IN_NAMES.sub("_", name).strip("._-")[:_NAME_CHARS_MAX]
