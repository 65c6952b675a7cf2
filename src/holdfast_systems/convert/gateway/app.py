"""The gateway's HTTP surface: POST /process and GET /health."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import IO, Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import PlainTextResponse
from starlette.datastructures import UploadFile
from starlette.requests import ClientDisconnect

from holdfast_systems.convert.gateway.accept import accepts_xml
from holdfast_systems.convert.gateway.converter import Converter, Refused
from holdfast_systems.convert.limits import (
    CORRELATION_CHARS_MAX,
    FORM_BYTES_MAX,
    FORM_FIELDS_MAX,
    MIB,
    PDF_BYTES_MAX,
)
from holdfast_systems.convert.settings import MAPPINGS

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


def make_app() -> FastAPI:
    app = FastAPI(title="PDF to XML", openapi_url=None)
    converter = Converter()
    app.add_exception_handler(Refused, _answer_refusal)
    app.add_exception_handler(ClientDisconnect, _answer_nobody)

    @app.get("/health")
    async def health() -> dict[str, Any]:
        return {"status": "ok", "mappings": MAPPINGS, "running": converter.running}

    @app.post("/process")
    async def process(request: Request) -> Response:
        if not accepts_xml(request.headers.get("accept")):
            raise Refused(
                406, "the response is application/xml, which the Accept header does not allow"
            )
        async with _read_form(request) as (mapping, pdf):
            xml = await converter.convert(pdf, mapping)
        return Response(xml, media_type="application/xml", headers=_correlation(request))

    return app


@asynccontextmanager
async def _read_form(request: Request) -> AsyncIterator[tuple[str, IO[bytes]]]:
    """Give the block the mapping and the PDF, which is a temporary file."""
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise Refused(415, "send multipart/form-data with the fields mapping and file")
    limited = Request(request.scope, _limited(request.receive))
    try:
        form = await limited.form(max_files=1, max_fields=FORM_FIELDS_MAX)
    except ValueError as error:  # the parser decodes with whatever charset the client names
        text = "the form can't be read: check the charset in Content-Type"
        raise Refused(400, text) from error
    try:
        mapping, file = form.get("mapping"), form.get("file")
        if not isinstance(file, UploadFile):
            raise Refused(400, "the field file is missing")
        if not isinstance(mapping, str) or mapping not in MAPPINGS:
            raise Refused(422, f"no such mapping; use one of: {', '.join(MAPPINGS)}")
        if (file.size or 0) > PDF_BYTES_MAX:
            raise _too_large()
        yield mapping, file.file
    finally:
        await form.close()


def _limited(receive: Receive) -> Receive:
    """Stop reading a body that is too large, whatever its Content-Length says."""
    received = 0

    async def receive_some() -> MutableMapping[str, Any]:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > FORM_BYTES_MAX:
            raise _too_large()
        return message

    return receive_some


def _too_large() -> Refused:
    return Refused(413, f"the PDF is larger than {PDF_BYTES_MAX // MIB} MiB")


def _correlation(request: Request) -> dict[str, str]:
    given = request.headers.get("x-correlation-id")
    return {"x-correlation-id": given[:CORRELATION_CHARS_MAX]} if given else {}


async def _answer_nobody(_request: Request, _error: Exception) -> Response:
    return Response(status_code=400)


def _answer_refusal(request: Request, refused: Exception) -> Response:
    if not isinstance(refused, Refused):
        raise refused
    headers = _correlation(request)
    if refused.status == 413:
        headers["Connection"] = "close"  # otherwise the server would read and discard the rest
    if refused.retry_after_seconds is not None:
        headers["Retry-After"] = str(refused.retry_after_seconds)
    return PlainTextResponse(str(refused), status_code=refused.status, headers=headers)
