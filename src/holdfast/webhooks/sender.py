"""Send one HTTP request and report the result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import aiohttp
import msgspec
from yarl import URL

from holdfast.domain.secrets import masked
from holdfast.domain.texts import storable_text
from holdfast.webhooks.addresses import AddressForbidden, make_socket_factory
from holdfast.webhooks.echoes import NOTHING, Echoes
from holdfast.webhooks.endpoints import parse_url
from holdfast.webhooks.errors import BadEndpoint
from holdfast.webhooks.limits import (
    CONNECT_SECONDS_MAX,
    ERROR_TEXT_CHARS_MAX,
    HEADER_CHARS_KEPT,
    RESPONSE_BYTES_KEPT,
    RESPONSE_BYTES_MAX,
    RESPONSE_HEADERS_KEPT,
)
from holdfast.webhooks.policy import Policy, is_success
from holdfast.webhooks.presets import Request

_PRIVATE_HEADERS: Final = frozenset({"set-cookie", "www-authenticate", "proxy-authenticate"})


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a request. Without an error code, it was delivered."""

    duration_ms: int
    response_status: int | None = None
    response_headers: str | None = None
    response_body: bytes | None = None
    error_code: str | None = None
    error_text: str | None = None


class _Answer(msgspec.Struct, frozen=True):
    status: int
    headers: str
    body: bytes


@asynccontextmanager
async def open_client(policy: Policy) -> AsyncIterator[aiohttp.ClientSession]:
    """Open a client that connects only to allowed addresses and ignores the environment.

    Each request gets a new connection, so that its address is resolved and checked.
    """
    connector = aiohttp.TCPConnector(
        limit=0,  # the worker limits jobs; waiting here would count toward the timeout
        force_close=True,
        use_dns_cache=False,
        socket_factory=make_socket_factory(allow_private=policy.allow_private_addresses),
    )
    timeout = aiohttp.ClientTimeout(
        total=policy.timeout_seconds,
        sock_connect=min(policy.timeout_seconds, CONNECT_SECONDS_MAX),
    )
    async with aiohttp.ClientSession(
        connector=connector,
        timeout=timeout,
        trust_env=False,
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": "Holdfast", "Accept-Encoding": "identity"},
    ) as client:
        yield client


async def send(
    client: aiohttp.ClientSession,
    policy: Policy,
    url: str,
    request: Request,
    echoes: Echoes = NOTHING,
) -> Report:
    """Send the request once. Failures are reported, not raised, and without the secrets that the
    receiver repeats."""
    loop = asyncio.get_running_loop()
    started = loop.time()

    def took_ms() -> int:
        return round((loop.time() - started) * 1000)

    try:
        endpoint = parse_url(url, https_only=policy.https_only)
        answer = await _post(client, endpoint, request, echoes)
    except (aiohttp.ClientError, BadEndpoint, OSError, ValueError) as error:
        text = masked(echoes.hide_text(f"{type(error).__name__}: {error}"), ERROR_TEXT_CHARS_MAX)
        text = storable_text(text, ERROR_TEXT_CHARS_MAX)
        return Report(duration_ms=took_ms(), error_code=_code(error), error_text=text)
    return Report(
        duration_ms=took_ms(),
        response_status=answer.status,
        response_headers=answer.headers,
        response_body=answer.body,
        error_code=None if is_success(answer.status) else f"HTTP_{answer.status}",
    )


async def _post(
    client: aiohttp.ClientSession, url: URL, request: Request, echoes: Echoes
) -> _Answer:
    async with client.post(
        url, data=request.body, headers=request.headers, allow_redirects=False
    ) as response:
        try:
            body = await _read(response)
        except (aiohttp.ClientError, OSError):
            body = b""  # the status has arrived, and that is what counts
        kept = echoes.hide(body, RESPONSE_BYTES_KEPT)
        return _Answer(response.status, _kept_headers(response.headers, echoes), kept)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """Read the body up to a limit; keep its beginning."""
    kept, size = b"", 0
    while size < RESPONSE_BYTES_MAX:
        piece = await response.content.read(RESPONSE_BYTES_MAX - size)
        if not piece:
            break
        size += len(piece)
        kept += piece[: 2 * RESPONSE_BYTES_KEPT - len(kept)]  # a secret may be across the end
    return kept


def _kept_headers(headers: Mapping[str, str], echoes: Echoes) -> str:
    def shown(text: str) -> str:
        return storable_text(echoes.hide_text(text), HEADER_CHARS_KEPT)

    kept = {
        shown(name): shown(value)
        for name, value in headers.items()
        if name.lower() not in _PRIVATE_HEADERS
    }
    return msgspec.json.encode(dict(list(kept.items())[:RESPONSE_HEADERS_KEPT])).decode()


def _code(error: Exception) -> str:
    match error:
        case TimeoutError():
            return "TIMEOUT"
        case aiohttp.InvalidURL():
            return "BAD_URL"
        case aiohttp.ClientConnectorError(os_error=AddressForbidden()):
            return "ADDRESS_FORBIDDEN"
        case aiohttp.ClientSSLError():
            return "TLS_FAILED"
        case aiohttp.ClientPayloadError() | aiohttp.ClientResponseError():
            return "BAD_RESPONSE"
        case aiohttp.ClientError() | OSError():
            return "NETWORK_ERROR"
    return "BAD_URL"
