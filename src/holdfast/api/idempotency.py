"""Idempotency-Key: a repeated POST changes nothing and gets the same response.

Follows the IETF's draft-ietf-httpapi-idempotency-key-header. A row that is committed before the
work begins claims the key. The work and its response commit together, in one transaction, which
fails if the row was lost. So the work is done once, even if the server is killed at any moment:
the row then stays, and after IN_FLIGHT_SECONDS_MAX a repeated request takes it over.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import uuid4

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holdfast.api.callers import Caller
from holdfast.api.limits import (
    ANSWER_BYTES_MAX,
    IDEMPOTENCY_KEY_CHARS_MAX,
    IN_FLIGHT_SECONDS_MAX,
    RETRY_AFTER_SECONDS,
)
from holdfast.api.problems import At, Problem
from holdfast.app import Holdfast
from holdfast.domain.encrypted_jobs import Witness, witnessed
from holdfast.domain.limits import TIDY_ROWS_MAX

HEADER: Final = "Idempotency-Key"
REPLAYED_HEADER: Final = "idempotency-replayed"
KEPT_HEADER: Final = "idempotency-kept-seconds"
FREE_SECONDS_MAX: Final = 2.0  # if this fails, the key becomes free after IN_FLIGHT_SECONDS_MAX

# A string (RFC 9651) or, as many clients send, a bare token. Parameters are ignored.
_STRING: Final = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"(?:;.*)?')
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~:/=-]+")
_ESCAPE: Final = re.compile(r"\\(.)")

Work = Callable[[Any], Awaitable[Response]]


async def idempotent(
    request: Request,
    caller: Caller,
    body: Any,
    work: Work,
    *,
    required: bool = False,
    encrypted: bool = False,
) -> Response:
    """Do the work of a request once per Idempotency-Key, and return the response.

    `body` is the parsed body, for example a Struct, or None if there is none. Its JSON, the method
    and the path tell whether a repeated key belongs to the same request. `encrypted` says that the
    body has arguments of encrypted jobs; only a hash under the secret keys is stored then. A
    response for which values of encrypted jobs were decrypted is stored encrypted.

    `work` gets the connection of an open transaction, and makes all changes with `connection=`. On
    SQLite, any other write would wait for this transaction. Without a key it gets None, and each
    change is a transaction of its own. If it raises, nothing is changed and the key is free again.

        async def work(connection: Any) -> Response:
            return answer(await caller.jobs.requeue(job_id, connection=connection), 201)

        return await idempotent(request, caller, None, work)

    Use `once` instead if there is something to read before the transaction begins.
    """
    async with once(request, caller, body, required=required, encrypted=encrypted) as attempt:
        return await attempt.finish(work)


@asynccontextmanager
async def once(
    request: Request,
    caller: Caller,
    body: Any,
    *,
    required: bool = False,
    encrypted: bool = False,
) -> AsyncIterator[Attempt]:
    """Claim the request's key for the block, which ends with `return await attempt.finish(work)`.

    If `attempt.replayed` is not None, the work is already done, and `finish` returns its response
    without calling `work`.
    """
    key = read_key(request)
    if key is None:
        if required:
            text = f"this request needs the {HEADER} header, so that it can be repeated safely"
            raise Problem("idempotency-key-missing", text, [At(text, parameter=HEADER)])
        yield Attempt(None, None)
        return
    hf, scope = caller.hf, caller.tenant or ""
    fingerprints: tuple[bytes, ...] = (_fingerprint(request, body),)
    if encrypted:
        fingerprints = hf.secrets.digests(fingerprints[0], "api_requests", scope, key)
    with witnessed() as witness:
        claim = _Claim(hf, scope, key, fingerprints, str(uuid4()), witness)
        replayed = await claim.take()
        try:
            yield Attempt(claim, replayed)
        except BaseException:
            if replayed is None:
                with suppress(Exception):  # the first error is the one to report
                    async with asyncio.timeout(FREE_SECONDS_MAX):
                        await claim.free()
            raise


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request that may be the first with its key."""

    _claim: _Claim | None
    replayed: Response | None

    async def finish(self, work: Work) -> Response:
        """Do the work and store the response in one transaction, or return the stored response."""
        if self.replayed is not None:
            return self.replayed
        if self._claim is None:
            return await work(None)
        return await self._claim.commit(work)


class _Row(msgspec.Struct, frozen=True):
    fingerprint: bytes
    status: int | None
    headers: str | None
    body: bytes | None

    def response(self, decrypt: Callable[[bytes], bytes]) -> Response:
        assert self.status is not None
        assert self.headers is not None
        assert self.body is not None
        headers = msgspec.json.decode(self.headers, type=dict[str, str])
        return Response(zlib.decompress(decrypt(self.body)), self.status, headers=headers)


class _Claim(NamedTuple):
    hf: Holdfast
    scope: str
    key: str
    fingerprints: tuple[bytes, ...]
    token: str
    witness: Witness

    async def take(self) -> Response | None:
        """Claim the key; return the response if there already is one."""
        async with self.hf._own_tables.transaction() as (_, statements):
            claimed = await statements.execute(
                "claim_request",
                scope=self.scope,
                key=self.key,
                fingerprint=self.fingerprints[0],
                token=self.token,
                in_flight_seconds=IN_FLIGHT_SECONDS_MAX,
                kept_seconds=self._kept_seconds,
            )
            if claimed:
                return None
            row = await statements.one("find_request", _Row, scope=self.scope, key=self.key)
        is_same = row is not None and row.fingerprint in self.fingerprints
        if row is None or (row.status is None and is_same):
            raise self._in_flight()
        if not is_same:
            text = f"the {HEADER} {self.key!r} was used for a different request; use a new key"
            raise Problem("idempotency-conflict", text, [At(text, parameter=HEADER)])
        cipher = self.hf._desk.cipher
        answer = row.response(partial(cipher.decrypt, self.scope, self.key, "answer"))
        answer.headers[REPLAYED_HEADER] = "true"
        return self._told(answer)

    async def commit(self, work: Work) -> Response:
        async with self.hf._own_tables.transaction() as (connection, statements):
            answer = await work(connection)
            body = zlib.compress(answer.body, 1)
            if len(body) > ANSWER_BYTES_MAX:
                text = "the response is too large to be stored for the key; ask for less at once"
                raise Problem("too-large", text)
            if self.witness.has_decrypted:
                body = self.hf._desk.cipher.encrypt(self.scope, self.key, "answer", body)
            headers = {**answer.headers}
            headers.pop("content-length", None)
            answered = await statements.execute(
                "answer_request",
                scope=self.scope,
                key=self.key,
                token=self.token,
                status=answer.status_code,
                headers=msgspec.json.encode(headers).decode(),
                body=body,
                kept_seconds=self._kept_seconds,
            )
            if not answered:  # this took so long that another request took over the key
                raise self._in_flight()
        return self._told(answer)

    async def free(self) -> None:
        async with self.hf._own_tables.transaction() as (_, statements):
            await statements.execute(
                "free_request", scope=self.scope, key=self.key, token=self.token
            )

    @property
    def _kept_seconds(self) -> float:
        return self.hf.settings.keys_kept_seconds

    def _told(self, answer: Response) -> Response:
        answer.headers[KEPT_HEADER] = str(int(self._kept_seconds))
        return answer

    def _in_flight(self) -> Problem:
        return Problem(
            "request-in-flight",
            f"a request with the {HEADER} {self.key!r} is in progress; try again later",
            headers={"retry-after": str(RETRY_AFTER_SECONDS)},
        )


def read_key(request: Request) -> str | None:
    """The key: a structured field's string, or a bare token."""
    given = request.headers.getlist(HEADER)
    if not given:
        return None
    text = given[0].strip()
    if quoted := _STRING.fullmatch(text):
        key = _ESCAPE.sub(r"\1", quoted[1])
    else:
        key = text if _TOKEN.fullmatch(text) else ""
    if len(given) > 1 or not 1 <= len(key) <= IDEMPOTENCY_KEY_CHARS_MAX:
        reason = (
            f"{HEADER} must be one string of 1 to {IDEMPOTENCY_KEY_CHARS_MAX} ASCII characters,"
            f' for example "{uuid4()}"'
        )
        raise Problem("bad-request", reason, [At(reason, parameter=HEADER)])
    return key


async def delete_expired(hf: Holdfast) -> int:
    """Delete some keys that are no longer kept; fewer than TIDY_ROWS_MAX means all of them."""
    async with hf._own_tables.transaction() as (_, statements):
        return await statements.execute("delete_expired_requests", rows_max=TIDY_ROWS_MAX)


def _fingerprint(request: Request, body: Any) -> bytes:
    what = f"{request.method} {request.url.path}?{request.url.query}\n"
    content = msgspec.json.encode(body, enc_hook=str, order="deterministic")
    return hashlib.sha256(what.encode() + content).digest()
