"""Salesforce's REST API, for what jobs need of it: queries, records, collections of records."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

import aiohttp
import msgspec

from holdfast.domain.errors import (
    BadArguments,
    ConfigurationError,
    StoreError,
    StoreRefused,
    StoreUnavailable,
)
from holdfast.salesforce import limits
from holdfast.salesforce.clock import ServerClock
from holdfast.seam import Seam

T = TypeVar("T")

DATA = f"/services/data/v{limits.API_VERSION}"
SCHEMES = {"salesforce": "https", "salesforce+http": "http"}

# Another request held the record, or the day's or the moment's share of requests is used up.
PASSING_CODES = frozenset(
    {"UNABLE_TO_LOCK_ROW", "REQUEST_LIMIT_EXCEEDED", "SERVER_UNAVAILABLE", "QUERY_TIMEOUT"}
)


class SalesforceRefused(StoreRefused):
    """Salesforce refused; `code` is its own word for the reason."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"Salesforce refused: {code}: {text}"[: limits.TOLD_CHARS_MAX])
        self.code = code
        self.text = text


class Written(NamedTuple):
    """What became of one record of many: its id, or why it was refused."""

    id: str | None
    refusal: SalesforceRefused | None = None


class _Granted(msgspec.Struct):
    access_token: str
    instance_url: str


class _Page(msgspec.Struct, rename="camel"):
    records: list[dict[str, Any]]
    done: bool
    total_size: int
    next_records_url: str = ""


class _Created(msgspec.Struct):
    id: str


class _Refusal(msgspec.Struct, rename="camel"):
    status_code: str = "UNKNOWN_EXCEPTION"
    message: str = ""


class _Result(msgspec.Struct):
    success: bool
    id: str | None = None
    errors: list[_Refusal] = []


class Salesforce:
    """One organisation, by the client credentials of an integration user.

    `salesforce://client_id:client_secret@host`; with `salesforce+http://` not encrypted, for the
    local Salesforce.
    """

    def __init__(self, url: str, seam: Seam | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in SCHEMES or not (parts.hostname and parts.username):
            raise ConfigurationError(
                "a Salesforce address looks like salesforce://client_id:client_secret@host"
            )
        self.host = parts.netloc.rpartition("@")[2]
        self._login_url = f"{SCHEMES[parts.scheme]}://{self.host}"
        self._client_id = unquote(parts.username)
        self._client_secret = unquote(parts.password or "")
        self._clock = ServerClock(seam or Seam())
        self._session: aiohttp.ClientSession | None = None
        self._token = ""
        self._instance_url = ""
        self._logging_in = asyncio.Lock()

    def __repr__(self) -> str:
        return f"Salesforce({self.host})"

    async def open(self) -> None:
        """Log in; nothing happens if that was done before."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=limits.REQUEST_SECONDS_MAX),
                connector=aiohttp.TCPConnector(limit=limits.CONNECTIONS_MAX),
            )
            try:
                await self._log_in("")
            except BaseException:
                await self.close()
                raise

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def __aenter__(self) -> Salesforce:
        await self.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def now(self) -> datetime:
        """The time by Salesforce's clock, never ahead of it."""
        return self._clock.now()

    async def query(self, soql: str) -> list[dict[str, Any]]:
        page = await self._call(_Page, "GET", f"{DATA}/query", params={"q": soql})
        records = page.records
        for _ in range(limits.QUERY_PAGES_MAX):
            if page.done:
                return records
            page = await self._call(_Page, "GET", page.next_records_url)
            records += page.records
        raise StoreRefused(f"a query found more than {len(records)} records")

    async def count(self, soql: str) -> int:
        """The answer to a query that selects COUNT()."""
        page = await self._call(_Page, "GET", f"{DATA}/query", params={"q": soql})
        return page.total_size

    async def insert(self, sobject: str, fields: Mapping[str, Any]) -> str:
        """Create a record; answer its id."""
        created = await self._call(_Created, "POST", f"{DATA}/sobjects/{sobject}", json=fields)
        return created.id

    async def delete(self, sobject: str, record_id: str) -> None:
        await self._send("DELETE", f"{DATA}/sobjects/{sobject}/{record_id}")

    async def insert_all(
        self, sobject: str, records: Sequence[Mapping[str, Any]]
    ) -> Sequence[Written]:
        """Create all of these records, or none of them."""
        return await self._write("POST", sobject, records, all_or_none=True)

    async def update_each(
        self, sobject: str, records: Sequence[Mapping[str, Any]]
    ) -> Sequence[Written]:
        """Update these records, which have an `Id` each, one independently of the other."""
        return await self._write("PATCH", sobject, records, all_or_none=False)

    async def download(self, path: str) -> bytes:
        """The bytes behind a field such as `sobjects/ContentVersion/<id>/VersionData`."""
        return await self._send("GET", f"{DATA}/{path}")

    async def _write(
        self, method: str, sobject: str, records: Sequence[Mapping[str, Any]], *, all_or_none: bool
    ) -> Sequence[Written]:
        if len(records) > limits.RECORDS_IN_CALL_MAX:
            raise BadArguments(
                f"Salesforce takes {limits.RECORDS_IN_CALL_MAX} records in one call,"
                f" not {len(records)}"
            )
        typed = [{"attributes": {"type": sobject}, **record} for record in records]
        body = {"allOrNone": all_or_none, "records": typed}
        results = await self._call(list[_Result], method, f"{DATA}/composite/sobjects", json=body)
        return [_written(result) for result in results]

    async def _call(self, answer: type[T], method: str, path: str, **options: Any) -> T:
        return self._decode(await self._send(method, path, **options), answer)

    def _decode(self, body: bytes, answer: type[T]) -> T:
        try:
            return msgspec.json.decode(body, type=answer)
        except msgspec.DecodeError as error:
            raise StoreUnavailable(
                f"what answers at {self.host} does not speak Salesforce's API: {error}"
            ) from error

    async def _send(self, method: str, path: str, **options: Any) -> bytes:
        """Send a request; a session that has ended is begun anew, once."""
        token = self._token
        status, body = await self._request(method, self._instance_url + path, token, **options)
        if status == 401:
            await self._log_in(token)
            status, body = await self._request(
                method, self._instance_url + path, self._token, **options
            )
        if status >= 300:
            raise self._error(status, body)
        return body

    async def _log_in(self, used_up: str) -> None:
        async with self._logging_in:
            if self._token != used_up:
                return  # Another task has done it meanwhile.
            form = {
                "grant_type": "client_credentials",
                "client_id": self._client_id,
                "client_secret": self._client_secret,
            }
            status, body = await self._request(
                "POST", f"{self._login_url}/services/oauth2/token", "", data=form
            )
            if status in (400, 401, 403):
                told = f"Salesforce at {self.host} does not let us in{_reason(body)}"
                # Who was let in before waits: too many logins are refused in the same way.
                raise StoreUnavailable(told) if used_up else ConfigurationError(told)
            if status >= 300:
                raise self._error(status, body)
            granted = self._decode(body, _Granted)
            self._token = granted.access_token
            self._instance_url = granted.instance_url.rstrip("/")

    async def _request(
        self, method: str, url: str, token: str, **options: Any
    ) -> tuple[int, bytes]:
        if self._session is None:
            raise StoreUnavailable(f"the connection to Salesforce at {self.host} is not open")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            async with self._session.request(
                method, url, headers=headers, allow_redirects=False, **options
            ) as response:
                self._clock.read(response.headers.get("Date"))
                return response.status, await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            told = f"{type(error).__name__}: {error}"[: limits.TOLD_CHARS_MAX]
            raise StoreUnavailable(f"Salesforce at {self.host} is not available: {told}") from error

    def _error(self, status: int, body: bytes) -> StoreError:
        code, text = f"HTTP_{status}", ""
        with suppress(msgspec.MsgspecError, LookupError, TypeError):
            first = msgspec.json.decode(body)[0]
            code, text = str(first["errorCode"]), str(first["message"])
        if not 400 <= status < 500 or status in (401, 429) or code in PASSING_CODES:
            told = f"{code}: {text}"[: limits.TOLD_CHARS_MAX]
            return StoreUnavailable(f"Salesforce at {self.host} is not available: {told}")
        return SalesforceRefused(code, text)


def _written(result: _Result) -> Written:
    if result.success:
        return Written(result.id)
    error = next(iter(result.errors), _Refusal())
    return Written(result.id, SalesforceRefused(error.status_code, error.message))


def _reason(body: bytes) -> str:
    """OAuth's words for a refused login."""
    try:
        refused = msgspec.json.decode(body, type=dict[str, str])
    except msgspec.DecodeError:
        return ""
    words = (refused.get(name, "") for name in ("error", "error_description"))
    return "".join(f": {word}" for word in words if word)[: limits.TOLD_CHARS_MAX]
