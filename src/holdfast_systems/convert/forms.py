"""Receive a form with a PDF and write the PDF to disk as it arrives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect, Request

from holdfast.api import At, Problem
from holdfast_systems.convert.failures import ConversionRefused, check_mapping
from holdfast_systems.convert.files import Files, Upload
from holdfast_systems.convert.limits import (
    FIELD_BYTES_MAX,
    FORM_BYTES_MAX,
    FORM_FIELDS_MAX,
    MIB,
    PDF_BYTES_MAX,
    UPLOAD_SECONDS_MAX,
)

FILE: Final = "file"
MAPPING: Final = "mapping"
_CLOSE: Final = {"connection": "close"}  # otherwise the server would read and discard the rest


@dataclass(frozen=True, slots=True)
class Form:
    """A PDF that is on disk, and what the client says about it."""

    upload: Upload
    mapping: str
    filename: str


async def receive_form(
    request: Request, files: Files, upload_id: UUID, mappings: tuple[str, ...]
) -> Form:
    """Write the form's PDF to disk. Nothing is left of a form that is rejected or cut off."""
    boundary = _boundary(request)
    _check_length(request)
    upload = await asyncio.to_thread(files.new_upload, upload_id)
    body = _chunks(request)
    try:
        async with asyncio.timeout(UPLOAD_SECONDS_MAX):
            try:
                return await _receive(body, _Parts(boundary), upload, mappings)
            except ConversionRefused as refused:
                # Many clients read no answer before they have sent everything.
                async for _ in body:
                    pass
                raise _refusal(refused) from None
    except BaseException as error:
        await asyncio.shield(asyncio.to_thread(upload.discard))
        if isinstance(error, TimeoutError):
            text = f"the body did not arrive within {UPLOAD_SECONDS_MAX:g} s"
            raise Problem("too-slow", text, headers=_CLOSE) from None
        raise


async def _receive(
    body: AsyncIterator[bytes], parts: _Parts, upload: Upload, mappings: tuple[str, ...]
) -> Form:
    async for chunk in body:
        if pdf := parts.read(chunk):
            await asyncio.to_thread(upload.write, pdf)
        if parts.mapping is not None:  # early, if the field comes before the file
            check_mapping(parts.mapping, mappings)
    mapping = parts.complete()
    await asyncio.to_thread(upload.finish)
    return Form(upload, mapping, parts.filename)


async def _chunks(request: Request) -> AsyncIterator[bytes]:
    received = 0
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk = message.get("body", b"")
        received += len(chunk)
        if received > FORM_BYTES_MAX:
            raise _too_large()
        yield chunk
        if not message.get("more_body", False):
            return


def _refusal(error: ConversionRefused) -> Problem:
    code = "too-large" if error.is_too_large else "bad-arguments"
    return Problem(code, str(error), reason=error.code)


def _boundary(request: Request) -> bytes:
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    boundary = options.get(b"boundary")
    if kind.lower() != b"multipart/form-data" or not boundary:
        raise _bad("send multipart/form-data with the fields mapping and file")
    return boundary


def _check_length(request: Request) -> None:
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > FORM_BYTES_MAX:
        raise _too_large()


def _too_large() -> Problem:
    text = f"the PDF is larger than {PDF_BYTES_MAX // MIB} MiB"
    return Problem("too-large", text, reason="PDF_SIZE", headers=_CLOSE)


def _bad(text: str, pointer: str | None = None) -> Problem:
    places = [] if pointer is None else [At(text, pointer=f"/{pointer}")]
    return Problem("bad-request", text, places, headers=_CLOSE)


@dataclass
class _Part:
    headers: dict[str, bytes] = field(default_factory=dict)
    name: str = ""
    content: bytearray = field(default_factory=bytearray)


class _Parts:
    """Takes a form apart, chunk by chunk."""

    def __init__(self, boundary: bytes) -> None:
        self.mapping: str | None = None
        self.filename = ""
        self._has_file = False
        self._ended = False
        self._count = 0
        self._part = _Part()
        self._header = (bytearray(), bytearray())
        self._pdf = bytearray()
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin,
                "on_header_field": lambda data, start, end: self._add(0, data[start:end]),
                "on_header_value": lambda data, start, end: self._add(1, data[start:end]),
                "on_header_end": self._end_header,
                "on_headers_finished": self._end_headers,
                "on_part_data": self._content,
                "on_part_end": self._end_part,
                "on_end": self._end,
            },
            max_header_count=FORM_FIELDS_MAX,
            max_header_size=FIELD_BYTES_MAX,
        )

    def read(self, chunk: bytes) -> bytes:
        """Return what the chunk has of the PDF."""
        try:
            self._parser.write(chunk)
        except FormParserError as error:
            raise _bad(f"the form can't be read: {error}") from None
        pdf = bytes(self._pdf)
        self._pdf.clear()
        return pdf

    def complete(self) -> str:
        """Return the mapping of a form that has everything."""
        if not self._ended:
            raise _bad("the form ends too early: its last boundary is missing")
        if self.mapping is None:
            raise _bad("the field mapping is missing", MAPPING)
        if not self._has_file:
            raise _bad("the field file is missing", FILE)
        return self.mapping

    def _begin(self) -> None:
        self._count += 1
        if self._count > FORM_FIELDS_MAX:
            raise _bad(f"the form has more than {FORM_FIELDS_MAX} fields")
        self._part = _Part()

    def _add(self, index: int, data: bytes) -> None:
        self._header[index].extend(data)

    def _end_header(self) -> None:
        name, value = self._header
        self._part.headers[name.decode("latin-1").lower()] = bytes(value)
        self._header = (bytearray(), bytearray())

    def _end_headers(self) -> None:
        disposition = self._part.headers.get("content-disposition")
        _, options = parse_options_header(disposition)
        self._part.name = options.get(b"name", b"").decode("utf-8", "replace")
        if self._part.name == FILE:
            if self._has_file:
                raise _bad("the form has more than one file", FILE)
            self._has_file = True
            self.filename = options.get(b"filename", b"").decode("utf-8", "replace")

    def _content(self, data: bytes, start: int, end: int) -> None:
        if self._part.name == FILE:
            self._pdf += data[start:end]
        elif self._part.name == MAPPING:
            self._part.content += data[start:end]
            if len(self._part.content) > FIELD_BYTES_MAX:
                raise _bad(f"the field mapping is longer than {FIELD_BYTES_MAX:,} bytes", MAPPING)

    def _end_part(self) -> None:
        if self._part.name == MAPPING:
            self.mapping = self._part.content.decode("utf-8", "replace")

    def _end(self) -> None:
        self._ended = True
