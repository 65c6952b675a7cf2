"""Salesforce's REST API, for what jobs need of it: queries, records, collections of records."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import aiohttp

from holdfast.store_api import (
    BadArguments,
    ConfigurationError,
    Seam,
    StoreError,
    StoreRefused,
    StoreUnavailable,
)
from holdfast_systems.documents.salesforce.client import answers, limits
from holdfast_systems.documents.salesforce.client.answers import (
    SalesforceRefused,
    Unusable,
    Written,
    shortened,
)
from holdfast_systems.documents.salesforce.client.clock import ServerClock

T = TypeVar("T")

DATA = f"/services/data/v{limits.API_VERSION}"
SCHEMES = {"salesforce": "https", "salesforce+http": "http"}

_TOKEN = re.compile(r"[!-~]+")  # what a header can hold

# Another request held the record, or the day's or the moment's share of requests is used up.
PASSING_CODES = frozenset(
    {"UNABLE_TO_LOCK_ROW", "REQUEST_LIMIT_EXCEEDED", "SERVER_UNAVAILABLE", "QUERY_TIMEOUT"}
)


class Salesforce:
    """One organization, by the client credentials of an integration user.

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
        self._scheme = SCHEMES[parts.scheme]
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
        page = await self._call(answers.Page, "GET", f"{DATA}/query", params={"q": soql})
        records = page.rows
        for _ in range(limits.QUERY_PAGES_MAX):
            if page.done:
                return records
            page = await self._call(answers.Page, "GET", self._next_path(page))
            records += page.rows
        raise StoreRefused(f"a query found more than {len(records)} records")

    async def find_id(self, soql: str) -> str | None:
        """The id of the first record that a query finds."""
        found = await self.query(soql)
        with self._using_answer():
            return answers.read_id(found[0].get("Id")) if found else None

    async def count(self, soql: str) -> int:
        """The answer to a query that selects COUNT()."""
        page = await self._call(answers.Page, "GET", f"{DATA}/query", params={"q": soql})
        return page.total_size

    async def insert(self, sobject: str, fields: Mapping[str, Any]) -> str:
        """Create a record; answer its id."""
        path = f"{DATA}/sobjects/{sobject}"
        created = await self._call(answers.Created, "POST", path, json=fields)
        with self._using_answer():
            return answers.read_id(created.id)

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
        path = f"{DATA}/composite/sobjects"
        results = await self._call(list[answers.Result], method, path, json=body)
        with self._using_answer():
            return answers.read_results(results, len(records))

    async def _call(self, answer: type[T], method: str, path: str, **options: Any) -> T:
        body = await self._send(method, path, **options)
        with self._using_answer():
            return answers.read(body, answer)

    @contextmanager
    def _using_answer(self) -> Iterator[None]:
        try:
            yield
        except Unusable as error:
            raise StoreUnavailable(
                f"what answers at {self.host} does not speak Salesforce's API: {error}"
            ) from error

    def _next_path(self, page: answers.Page) -> str:
        with self._using_answer():
            # Behind the host's name, anything else could make another host of it.
            if not page.next_records_url.startswith("/services/data/"):
                raise Unusable("the URL of the next page is invalid")
            return page.next_records_url

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
            login_url = f"{self._scheme}://{self.host}/services/oauth2/token"
            status, body = await self._request("POST", login_url, "", data=form)
            if status in (400, 401, 403):
                reason = answers.read_reason(body)
                told = f"Salesforce at {self.host} rejected the login{reason}"
                # A client that logged in before tries again: too many logins fail in the same way.
                raise StoreUnavailable(told) if used_up else ConfigurationError(told)
            if status >= 300:
                raise self._error(status, body)
            self._enter(body)

    def _enter(self, body: bytes) -> None:
        with self._using_answer():
            granted = answers.read(body, answers.Granted)
            if not granted.instance_url.startswith(f"{self._scheme}://"):
                raise Unusable(f"the instance URL does not start with {self._scheme}")
            if not _TOKEN.fullmatch(granted.access_token):
                raise Unusable("the access token is invalid")
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
                with self._using_answer():
                    return response.status, await _read_body(response)
        except (aiohttp.ClientError, OSError) as error:
            told = shortened(f"{type(error).__name__}: {error}")
            raise StoreUnavailable(f"Salesforce at {self.host} is not available: {told}") from error

    def _error(self, status: int, body: bytes) -> StoreError:
        code, text = answers.read_error(status, body)
        if not 400 <= status < 500 or status in (401, 429) or code in PASSING_CODES:
            told = shortened(f"{code}: {text}")
            return StoreUnavailable(f"Salesforce at {self.host} is not available: {told}")
        return SalesforceRefused(code, text)


async def _read_body(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > limits.ANSWER_BYTES_MAX:
            raise Unusable(f"the answer is longer than {limits.ANSWER_BYTES_MAX} bytes")
    return bytes(body)
