"""Salesforce's REST API, for what jobs need of it: queries, records, collections of records."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple
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


class Written(NamedTuple):
    """What became of one record of many: its id, or why it was refused."""

    id: str | None
    refusal: SalesforceRefused | None = None


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
        answer = await self._call("GET", f"{DATA}/query", params={"q": soql})
        records: list[dict[str, Any]] = answer["records"]
        for _ in range(limits.QUERY_PAGES_MAX):
            if answer["done"]:
                return records
            answer = await self._call("GET", answer["nextRecordsUrl"])
            records += answer["records"]
        raise StoreRefused(f"a query found more than {len(records)} records")

    async def count(self, soql: str) -> int:
        """The answer to a query that selects COUNT()."""
        total: int = (await self._call("GET", f"{DATA}/query", params={"q": soql}))["totalSize"]
        return total

    async def insert(self, sobject: str, fields: Mapping[str, Any]) -> str:
        """Create a record; answer its id."""
        created = await self._call("POST", f"{DATA}/sobjects/{sobject}", json=fields)
        record_id: str = created["id"]
        return record_id

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
        answer = await self._call(method, f"{DATA}/composite/sobjects", json=body)
        return [_written(result) for result in answer]

    async def _call(self, method: str, path: str, **options: Any) -> Any:
        body = await self._send(method, path, **options)
        try:
            return msgspec.json.decode(body or b"null")
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
        if status >= 400:
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
                raise ConfigurationError(f"Salesforce at {self.host} does not let us in")
            if status >= 400:
                raise self._error(status, body)
            granted = msgspec.json.decode(body)
            self._token = granted["access_token"]
            self._instance_url = granted["instance_url"].rstrip("/")

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
                body = await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            told = f"{type(error).__name__}: {error}"[: limits.TOLD_CHARS_MAX]
            raise StoreUnavailable(f"Salesforce at {self.host} is not available: {told}") from error
        self._clock.read(response.headers.get("Date"))
        return response.status, body

    def _error(self, status: int, body: bytes) -> StoreError:
        code, text = f"HTTP_{status}", ""
        with suppress(msgspec.MsgspecError, LookupError, TypeError):
            first = msgspec.json.decode(body)[0]
            code, text = str(first["errorCode"]), str(first["message"])
        if status >= 500 or status == 429 or code in PASSING_CODES:
            told = f"{code}: {text}"[: limits.TOLD_CHARS_MAX]
            return StoreUnavailable(f"Salesforce at {self.host} is not available: {told}")
        return SalesforceRefused(code, text)


def _written(result: Mapping[str, Any]) -> Written:
    if result["success"]:
        return Written(result["id"])
    error = (result.get("errors") or [{}])[0]
    code, text = error.get("statusCode", "UNKNOWN_EXCEPTION"), error.get("message", "")
    return Written(result.get("id"), SalesforceRefused(str(code), str(text)))
