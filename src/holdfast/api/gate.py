"""The gate: identifies the caller by the request's key.

While the database has no keys, the caller is an administrator, but only on this machine, and not
if a browser calls on behalf of another site. Once a key exists, every request needs one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from logging import ERROR
from typing import Final

from starlette.requests import Request

from holdfast.api.callers import Caller
from holdfast.api.kept import Kept
from holdfast.api.limits import (
    ADDRESSES_WATCHED_MAX,
    FAILED_KEYS_PER_SECOND,
    KEY_KEPT_SECONDS,
    KEYS_KEPT_MAX,
    REQUESTS_PER_SECOND,
)
from holdfast.api.problems import At, Problem, unavailable
from holdfast.api.rate_limits import RateLimits, too_many
from holdfast.app import Holdfast
from holdfast.domain.addresses import is_loopback
from holdfast.domain.errors import ConfigurationError
from holdfast.domain.keys import SCOPES, Key, derived, id_of
from holdfast.observability import logs
from holdfast.operations.keys import Found
from holdfast.operations.pepper import HOW_TO_MAKE, VARIABLE, from_environment
from holdfast.stores.protocol import Transactions, capability

LOCAL: Final = "local"
_SCHEME: Final = "bearer"
_ALL_SCOPES: Final = frozenset(SCOPES)
_TO_READ: Final = frozenset({"read"})
_FORWARDED: Final = frozenset(
    {
        b"forwarded",
        b"via",
        b"x-forwarded-for",
        b"x-forwarded-host",
        b"x-forwarded-proto",
        b"x-real-ip",
    }
)


class Gate:
    def __init__(self, hf: Holdfast) -> None:
        self._hf = hf
        self._secret: bytes | None = None
        self._is_guessable = False  # the secret; only until there are keys
        self._tables: bool | None = None  # whether the store has any; unknown before the first use
        self._any_keys = False  # keys are never deleted, so this stays true
        self._exist: Kept[bool] = Kept(self._monotonic, KEY_KEPT_SECONDS, 1)
        self._found: Kept[Found | None] = Kept(self._monotonic, KEY_KEPT_SECONDS, KEYS_KEPT_MAX)
        self._by_id: Kept[Found | None] = Kept(self._monotonic, KEY_KEPT_SECONDS, KEYS_KEPT_MAX)
        self._rates = RateLimits(self._monotonic, KEYS_KEPT_MAX)
        self._failures = RateLimits(self._monotonic, ADDRESSES_WATCHED_MAX)

    @property
    def secret(self) -> bytes:
        """The secret that signs lease IDs. It is known once a request has been admitted, and is the
        same in all processes of a service."""
        assert self._secret is not None, "no request has been admitted yet"
        return self._secret

    async def find_secret(self) -> bytes:
        """The same, also before the first request has been admitted."""
        with _misconfigured():
            if self._secret is None or (self._is_guessable and await self._has_keys()):
                self._secret = await self._find_secret()
        return self._secret

    async def check_open_to(self, host: str) -> None:
        """Raise ConfigurationError if a server must not listen on this host. Without a key, or
        without a pepper in the environment, only this machine may reach it."""
        if not is_loopback(host) and from_environment() is None:
            raise ConfigurationError(
                f"to listen on {host}, the API needs {VARIABLE}, the secret that keys are hashed"
                f" with; {HOW_TO_MAKE}"
            )
        has_keys = await self._has_keys()
        if has_keys:
            await self._hf.keys.check_pepper()
        if is_loopback(host):
            return
        if not await self._has_tables():
            raise ConfigurationError(
                f"this database can't store keys, so the API can't listen on {host}; listen on"
                " 127.0.0.1"
            )
        if not has_keys:
            raise ConfigurationError(
                f"the API can't listen on {host} without keys: anyone could change your jobs;"
                " create a key first: holdfast keys create NAME --scope all"
            )

    async def admit(self, request: Request) -> Caller:
        """Return the caller, or raise a Problem: 400, 401, 403, 429 or 503."""
        await self.find_secret()
        given = request.headers.getlist("authorization")
        if len(given) > 1:
            text = "send one Authorization header, not several"
            raise Problem("bad-request", text, [At(text, parameter="Authorization")])
        with _misconfigured():
            if not given:
                return await self._admit_without_key(request)
            return self._holder(request, await self._find(request, given[0]))

    async def admit_without_key(self, request: Request) -> Caller:
        """Like `admit`, for a request whose Authorization header doesn't count."""
        await self.find_secret()
        with _misconfigured():
            return await self._admit_without_key(request)

    async def admit_again(self, request: Request, key_id: str) -> Caller:
        """Return the caller, who has proved earlier to have the key with this ID, or raise a
        Problem: 401 if it was revoked or rotated, or has expired."""
        with _misconfigured():
            found, age = await self._by_id.get(key_id, lambda: self._hf.keys.look_up(key_id))
        if found is None or not found.key.is_usable(found.now + timedelta(seconds=age)):
            raise _key_missing(is_given=True)
        return self._holder(request, found.key)

    async def check_key(self, request: Request, text: str) -> Key:
        """Return the key with this text. Raise a Problem if there is none, or too many wrong ones
        came from this address."""
        with _misconfigured():
            return await self._find(request, f"{_SCHEME} {text}")

    async def _admit_without_key(self, request: Request) -> Caller:
        if await self._has_keys():
            raise _key_missing(is_given=False)
        _check_on_this_machine(request)
        return self._caller(request, LOCAL, None, _ALL_SCOPES)

    def _holder(self, request: Request, key: Key) -> Caller:
        self._check_rate(key)
        return self._caller(request, key.name, key.tenant, frozenset(key.scopes), key)

    async def check_again(self, request: Request) -> None:
        """Raise a Problem if the key was revoked, or expired, while its request waited."""
        given = request.headers.get("authorization")
        if given is not None:
            await self._find(request, given)

    def may_record_denial(self, caller: Caller) -> bool:
        """Whether to add another denial of this key to the audit log: at most one per second."""
        return self._rates.take((caller.key_id, "denials"), 1.0)

    def may_record_failure(self, request: Request) -> bool:
        """Whether to add another failed login from this address: at most one per second."""
        return self._failures.take((address_of(request), "failed login"), 1.0)

    async def _find(self, request: Request, given: str) -> Key:
        scheme, _, text = given.partition(" ")
        address = address_of(request)
        digest = hashlib.sha256(text.encode()).digest()
        # A key that was valid is always looked up: it may share its address with attackers.
        if not self._found.last(digest):
            wait = self._failures.wait_seconds(address, FAILED_KEYS_PER_SECOND)
            if wait:
                detail = "too many requests with invalid keys came from this address"
                raise too_many(detail, FAILED_KEYS_PER_SECOND, wait)
        if scheme.lower() == _SCHEME and id_of(text) is not None and await self._has_tables():
            found, age = await self._found.get(digest, lambda: self._hf.keys.find(text))
            if found is not None and found.key.is_usable(found.now + timedelta(seconds=age)):
                return found.key
        self._failures.take(address, FAILED_KEYS_PER_SECOND)
        raise _key_missing(is_given=True)

    def _check_rate(self, key: Key) -> None:
        rate = rate_of(key)
        if not self._rates.take(key.id, rate):
            detail = f"this key is limited to {rate:g} requests per second"
            raise too_many(detail, rate, self._rates.wait_seconds(key.id, rate))

    def _caller(
        self,
        request: Request,
        name: str,
        tenant: str | None,
        scopes: frozenset[str],
        key: Key | None = None,
    ) -> Caller:
        return Caller(
            self._hf,
            name,
            tenant,
            scopes & _TO_READ if self._hf.settings.read_only else scopes,
            key=key,
            address=address_of(request),
            correlation_id=request.state.correlation_id,
        )

    async def _has_tables(self) -> bool:
        if self._tables is None:
            self._tables = capability(await self._hf._store(), Transactions) is not None
        return self._tables

    async def _has_keys(self) -> bool:
        """Raises if the database can't be reached: no answer does not mean no keys."""
        if not self._any_keys and await self._has_tables():
            self._any_keys, _ = await self._exist.get(None, self._hf.keys.exist)
        return self._any_keys

    async def _find_secret(self) -> bytes:
        if await self._has_tables():
            try:
                secret = derived(await self._hf._pepper.get(), "gate")
            except ConfigurationError:
                if await self._has_keys():
                    raise
            else:
                self._is_guessable = False
                return secret
        # Anyone who reaches this server is its administrator, so there is nothing to protect yet.
        self._is_guessable = True
        return derived(self._hf._database.encode(), "gate")

    def _monotonic(self) -> float:
        return self._hf._desk.seam().monotonic()


@contextmanager
def _misconfigured() -> Iterator[None]:
    """The server is misconfigured; the request is fine."""
    try:
        yield
    except ConfigurationError as error:
        logs.event(ERROR, "keys_not_checked", str(error))
        raise unavailable("the server can't check keys; see its log") from error


def rate_of(key: Key) -> float:
    return key.requests_per_second or REQUESTS_PER_SECOND


def address_of(request: Request) -> str | None:
    client: tuple[str, int] | None = request.scope.get("client")
    return client and client[0]


def _check_on_this_machine(request: Request) -> None:
    """Two attacks come from a browser on this machine: a foreign host name that resolves to it (DNS
    rebinding) and a form on a foreign page. The Host, Origin and Sec-Fetch-Site headers give
    them away. A proxy forwards the requests of others."""
    headers = dict(request.scope["headers"])
    server: tuple[str, int | None] = request.scope.get("server") or ("", None)
    if not (is_loopback(address_of(request) or "") and is_loopback(server[0])):
        raise _not_without_key("requests from other machines need a key")
    if not _FORWARDED.isdisjoint(headers):
        raise _not_without_key("requests through a proxy need a key")
    host = headers.get(b"host", b"").decode("latin-1")
    if not is_loopback(_without_port(host)):
        raise _not_without_key(f"requests for the host {host[:100]!r} need a key")
    origin = headers.get(b"origin")
    is_own = origin is None or origin.decode("latin-1") == f"{request.scope['scheme']}://{host}"
    if not is_own or headers.get(b"sec-fetch-site") == b"cross-site":
        raise _not_without_key("requests from other sites need a key")


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() and not name.endswith(":") else host


def _not_without_key(detail: str) -> Problem:
    return Problem("not-allowed", f"{detail}; create one with: holdfast keys create")


def _key_missing(*, is_given: bool) -> Problem:
    if not is_given:
        return Problem(
            "key-missing",
            "send a key in the Authorization header: Bearer hfk_...",
            headers={"www-authenticate": 'Bearer realm="holdfast"'},
        )
    return Problem(
        "key-missing",
        "the key is unknown, expired or revoked",
        headers={"www-authenticate": 'Bearer realm="holdfast", error="invalid_token"'},
    )
