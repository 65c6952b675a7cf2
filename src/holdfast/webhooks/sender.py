"""Send one HTTP request and report the result.

A report is for the tenant, and must not help it to explore networks: every failure to connect has
the same code and text, whether nobody answers, the name is unknown, or the address is forbidden.
Only `cause`, which is logged and not stored, tells them apart.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from holdfast.domain.secrets import masked
from holdfast.domain.texts import storable_text
from holdfast.webhooks.addresses import AddressForbidden, is_allowed, make_socket_factory
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
from holdfast.webhooks.retry_after import read_retry_after

CONNECT_SHARE: Final = 0.9  # of the time for the request, so that connecting fails as such
NETWORK_ERROR: Final = "NETWORK_ERROR"
NOT_CONNECTED: Final = "could not connect to the receiver"
_PRIVATE_HEADERS: Final = frozenset({"set-cookie", "www-authenticate", "proxy-authenticate"})


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a request. Without an error code, it was delivered. `cause` is for operators
    only."""

    duration_ms: int
    response_status: int | None = None
    response_headers: str | None = None
    response_body: bytes | None = None
    retry_after_seconds: float | None = None
    error_code: str | None = None
    error_text: str | None = None
    cause: str | None = None


class _Answer(msgspec.Struct, frozen=True):
    status: int
    headers: str
    body: bytes
    retry_after_seconds: float | None


class _GuardedResolver(AbstractResolver):
    """Refuses a name if any of its addresses is forbidden, whichever would be connected."""

    def __init__(self, inner: AbstractResolver, *, allow_private: bool) -> None:
        self._inner = inner
        self._allow_private = allow_private

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._inner.resolve(host, port, family)
        if not all(is_allowed(each["host"], allow_private=self._allow_private) for each in found):
            raise AddressForbidden
        return found

    async def close(self) -> None:
        await self._inner.close()


@asynccontextmanager
async def open_client(
    policy: Policy, resolver: AbstractResolver | None = None
) -> AsyncIterator[aiohttp.ClientSession]:
    """Open a client that connects only to allowed addresses and ignores the environment.

    Each request gets a new connection, so that its address is resolved and checked. The socket is
    made for the address that was checked, and checks it once more.
    """
    allow_private = policy.allow_private_addresses
    connector = aiohttp.TCPConnector(
        limit=0,  # the worker limits jobs; waiting here would count toward the timeout
        force_close=True,
        use_dns_cache=False,
        resolver=_GuardedResolver(
            resolver or aiohttp.ThreadedResolver(), allow_private=allow_private
        ),
        socket_factory=make_socket_factory(allow_private=allow_private),
    )
    timeout = aiohttp.ClientTimeout(
        total=policy.timeout_seconds,
        sock_connect=min(policy.timeout_seconds * CONNECT_SHARE, CONNECT_SECONDS_MAX),
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
        return _failed(error, took_ms(), echoes)
    return Report(
        duration_ms=took_ms(),
        response_status=answer.status,
        response_headers=answer.headers,
        response_body=answer.body,
        retry_after_seconds=answer.retry_after_seconds,
        error_code=None if is_success(answer.status) else f"HTTP_{answer.status}",
    )


def _failed(error: Exception, duration_ms: int, echoes: Echoes) -> Report:
    text = masked(echoes.hide_text(f"{type(error).__name__}: {error}"), ERROR_TEXT_CHARS_MAX)
    text = storable_text(text, ERROR_TEXT_CHARS_MAX)
    if cause := _cause_of_no_connection(error):
        return Report(
            duration_ms=duration_ms,
            error_code=NETWORK_ERROR,
            error_text=NOT_CONNECTED,
            cause=f"{cause}: {text}",
        )
    return Report(duration_ms=duration_ms, error_code=_code(error), error_text=text)


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
        return _Answer(
            response.status,
            _kept_headers(response.headers, echoes),
            kept,
            read_retry_after(response.headers),
        )


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


def _cause_of_no_connection(error: Exception) -> str | None:
    match error:
        case aiohttp.ClientSSLError() | aiohttp.InvalidURL():
            return None
        case aiohttp.ClientConnectorError(os_error=AddressForbidden()):
            return "ADDRESS_FORBIDDEN"
        case aiohttp.ClientConnectorDNSError():
            return "NAME_UNKNOWN"
        case aiohttp.ConnectionTimeoutError():
            return "CONNECT_TIMEOUT"
        case aiohttp.ClientConnectorError():
            return "CONNECT_FAILED"
    return None


def _code(error: Exception) -> str:
    match error:
        case TimeoutError():
            return "TIMEOUT"
        case aiohttp.InvalidURL():
            return "BAD_URL"
        case aiohttp.ClientSSLError():
            return "TLS_FAILED"
        case aiohttp.ClientPayloadError() | aiohttp.ClientResponseError():
            return "BAD_RESPONSE"
        case aiohttp.ClientError() | OSError():
            return NETWORK_ERROR
    return "BAD_URL"
