"""Calls to the gateway."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from uuid import UUID

import aiohttp

from holdfast import JobError, Permanent, Transient
from holdfast_systems.convert import failures
from holdfast_systems.convert.files import NotXml, Pdf, check_xml
from holdfast_systems.convert.limits import GATEWAY_ERROR_BYTES_MAX, MIB, XML_BYTES_MAX

_CHUNK_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Answer:
    """XML, or a failure. `status` is None if the gateway did not answer."""

    status: int | None
    xml: bytes = b""
    failure: JobError | None = None


class GatewayClient:
    def __init__(self, session: aiohttp.ClientSession, url: str, timeout_seconds: float) -> None:
        self._session = session
        self._process_url = f"{url.rstrip('/')}/process"
        self._timeout_seconds = timeout_seconds

    async def process(self, pdf: Pdf, mapping: str, correlation_id: UUID) -> Answer:
        """Send a PDF while it is read from disk. Errors are returned as failures, too."""
        try:
            async with self._post(pdf, mapping, correlation_id) as response:
                return await _read(response)
        except TimeoutError:
            text = f"the gateway did not answer within {self._timeout_seconds:g} s"
            return Answer(None, failure=Transient(text, code=failures.GW_TIMEOUT))
        except (aiohttp.ClientError, OSError, ValueError) as error:  # ValueError: an odd URL
            if pdf.failure is not None:
                return Answer(None, failure=failures.of_file(pdf.failure))
            text = f"can't reach the gateway: {type(error).__name__}"
            return Answer(None, failure=Transient(text, code=failures.GW_5XX))

    def _post(
        self, pdf: Pdf, mapping: str, correlation_id: UUID
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        form = aiohttp.FormData()
        form.add_field("mapping", mapping)
        name = f"{correlation_id}.pdf"
        form.add_field("file", pdf, filename=name, content_type="application/pdf")
        return self._session.post(
            self._process_url,
            data=form,
            headers={"Accept": "application/xml", "x-correlation-id": str(correlation_id)},
            timeout=aiohttp.ClientTimeout(total=self._timeout_seconds),
            allow_redirects=False,
        )


async def _read(response: aiohttp.ClientResponse) -> Answer:
    if not 200 <= response.status < 300:
        detail = (await response.content.read(GATEWAY_ERROR_BYTES_MAX)).decode("utf-8", "replace")
        failure = failures.of_status(response.status, response.headers, detail)
        return Answer(response.status, failure=failure)
    if not _says_xml(response):
        text = failures.one_line(f"the gateway answered {response.content_type}, not XML")
        return Answer(response.status, failure=Transient(text, code=failures.GW_5XX))
    xml = bytearray()
    async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
        xml += chunk
        if len(xml) > XML_BYTES_MAX:
            text = f"the gateway's XML is larger than {XML_BYTES_MAX // MIB} MiB"
            return Answer(response.status, failure=Permanent(text, code=failures.GW_5XX))
    try:
        await asyncio.to_thread(check_xml, bytes(xml))
    except NotXml as error:
        text = failures.one_line(f"the gateway's answer is not usable: {error}")
        return Answer(response.status, failure=Transient(text, code=failures.GW_5XX))
    return Answer(response.status, bytes(xml))


def _says_xml(response: aiohttp.ClientResponse) -> bool:
    """Check the type: an error page of a proxy may be well-formed XML, too."""
    kind = response.content_type
    return (
        "Content-Type" not in response.headers
        or kind in ("application/xml", "text/xml")
        or (kind.endswith("+xml") and kind != "application/xhtml+xml")
    )
