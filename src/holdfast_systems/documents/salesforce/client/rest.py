"""The parts of Salesforce's REST API that jobs need: queries, records, collections of records."""

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
from holdfast_systems.documents.salesforce.client.answers import Unusable, Written
from holdfast_systems.documents.salesforce.client.clock import ServerClock
from holdfast_systems.documents.salesforce.client.usage import usage_of
from holdfast_systems.urls import has_usable_host

T = TypeVar("T")
Bodies = Sequence[Mapping[str, Any]]

DATA = f"/services/data/v{limits.API_VERSION}"
SCHEMES = {"salesforce": "https", "salesforce+http": "http"}

# Errors show this example instead of the URL, which contains a secret.
_EXAMPLE = "salesforce://client_id:client_secret@host"
_BAD_HOST = f"the host or port in the Salesforce URL is invalid: {_EXAMPLE}"
_TOKEN = re.compile(r"[!-~]+")  # what a header can contain
_NOT_IN_INSTANCES = re.compile(r"[@?#]")  # credentials, or what would swallow the path

# Another request had locked the record, or Salesforce is overloaded or over its request limit.
TRANSIENT_CODES = frozenset(
    {"UNABLE_TO_LOCK_ROW", "REQUEST_LIMIT_EXCEEDED", "SERVER_UNAVAILABLE", "QUERY_TIMEOUT"}
)


class Salesforce:
    """A client for one organization, logged in with the client credentials of a user.

    The URL is `salesforce://client_id:client_secret@host`, or `salesforce+http://...` without
    encryption, for the local Salesforce.
    """

    def __init__(self, url: str, seam: Seam | None = None) -> None:
        try:
            parts = urlsplit(url)
        except ValueError:
            raise ConfigurationError(_BAD_HOST) from None
        if parts.scheme not in SCHEMES or not (parts.hostname and parts.username):
            raise ConfigurationError(
                f"a Salesforce URL needs a client id, its secret and a host: {_EXAMPLE}"
            )
        self.host = parts.netloc.rpartition("@")[2]
        self._scheme = SCHEMES[parts.scheme]
        if not has_usable_host(f"{self._scheme}://{self.host}"):
            raise ConfigurationError(_BAD_HOST)
        self._client_id = unquote(parts.username)
        self._client_secret = unquote(parts.password or "")
        self._clock = ServerClock(seam or Seam())
        self.usage = usage_of(self.host, self._client_id)
        self._session: aiohttp.ClientSession | None = None
        self._token = ""
        self._instance_url = ""
        self._login_lock = asyncio.Lock()

    def __repr__(self) -> str:
        return f"Salesforce({self.host})"

    async def open(self) -> None:
        """Log in, unless the client is open already."""
        if self._session is not None:
            return
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
        """Return the time on Salesforce's clock, never ahead of it."""
        return self._clock.now()

    async def query(self, soql: str) -> list[dict[str, Any]]:
        """Return all records that a query finds."""
        page = await self._call(answers.Page, "GET", f"{DATA}/query", params={"q": soql})
        records = page.rows
        for _ in range(limits.QUERY_PAGES_MAX):
            if page.done:
                return records
            page = await self._call(answers.Page, "GET", self._next_path(page))
            records += page.rows
        raise StoreRefused(f"the query found more than {len(records)} records; narrow it down")

    async def find_id(self, soql: str) -> str | None:
        """Return the id of the first record that a query finds."""
        found = await self.query(soql)
        with self._checking_answer():
            return answers.read_id(found[0].get("Id")) if found else None

    async def count(self, soql: str) -> int:
        """Return the result of a query that selects COUNT()."""
        page = await self._call(answers.Page, "GET", f"{DATA}/query", params={"q": soql})
        return page.total_size

    async def insert(self, sobject: str, fields: Mapping[str, Any]) -> str:
        """Create a record and return its id."""
        path = f"{DATA}/sobjects/{sobject}"
        created = await self._call(answers.Created, "POST", path, json=fields)
        with self._checking_answer():
            return answers.read_id(created.id)

    async def delete(self, sobject: str, record_id: str) -> None:
        await self._send("DELETE", f"{DATA}/sobjects/{sobject}/{record_id}")

    async def insert_all(self, sobject: str, records: Bodies) -> Sequence[Written]:
        """Create all of these records, or none."""
        return await self._write("POST", sobject, records, all_or_none=True)

    async def update_each(self, sobject: str, records: Bodies) -> Sequence[Written]:
        """Update these records, each by its `Id` and independently of the others."""
        return await self._write("PATCH", sobject, records, all_or_none=False)

    async def download(self, path: str) -> bytes:
        """Download the bytes at a path such as `sobjects/ContentVersion/<id>/VersionData`."""
        return await self._send("GET", f"{DATA}/{path}")

    async def _write(
        self, method: str, sobject: str, records: Bodies, *, all_or_none: bool
    ) -> Sequence[Written]:
        if len(records) > limits.RECORDS_IN_CALL_MAX:
            raise BadArguments(
                f"{len(records)} records are too many for one call to Salesforce;"
                f" the limit is {limits.RECORDS_IN_CALL_MAX}"
            )
        typed = [{"attributes": {"type": sobject}, **record} for record in records]
        body = {"allOrNone": all_or_none, "records": typed}
        path = f"{DATA}/composite/sobjects"
        results = await self._call(list[answers.Result], method, path, json=body)
        with self._checking_answer():
            return answers.read_results(results, len(records))

    async def _call(self, answer: type[T], method: str, path: str, **options: Any) -> T:
        body = await self._send(method, path, **options)
        with self._checking_answer():
            return answers.read(body, answer)

    @contextmanager
    def _checking_answer(self) -> Iterator[None]:
        try:
            yield
        except Unusable as error:
            raise StoreUnavailable(
                f"the server at {self.host} does not speak Salesforce's API: {error}"
            ) from error

    def _next_path(self, page: answers.Page) -> str:
        with self._checking_answer():
            # Appended to the instance URL, anything else could name another host.
            if not page.next_records_url.startswith("/services/data/"):
                raise Unusable("the URL of the next page is invalid")
            return page.next_records_url

    async def _send(self, method: str, path: str, **options: Any) -> bytes:
        """Send a request. If the session has expired, log in again, once."""
        token = self._token
        status, body = await self._request(method, self._instance_url + path, token, **options)
        if status == 401:
            await self._log_in(token)
            url = self._instance_url + path
            status, body = await self._request(method, url, self._token, **options)
        if status >= 300:
            raise self._error(status, body)
        return body

    async def _log_in(self, expired: str) -> None:
        async with self._login_lock:
            if self._token != expired:
                return  # Another task has logged in.
            form = {
                "grant_type": "client_credentials",
                "client_id": self._client_id,
                "client_secret": self._client_secret,
            }
            login_url = f"{self._scheme}://{self.host}/services/oauth2/token"
            status, body = await self._request("POST", login_url, "", data=form)
            if status in (400, 401, 403):
                reason = answers.read_reason(body)
                message = f"Salesforce at {self.host} rejected the login{reason}"
                # A client that has logged in before keeps trying: there may be too many logins.
                raise StoreUnavailable(message) if expired else ConfigurationError(message)
            if status >= 300:
                raise self._error(status, body)
            self._use_login(body)

    def _use_login(self, body: bytes) -> None:
        with self._checking_answer():
            granted = answers.read(body, answers.Granted)
            url = granted.instance_url
            if not url.startswith(f"{self._scheme}://"):
                raise Unusable(f"the instance URL does not start with {self._scheme}")
            if not has_usable_host(url) or _NOT_IN_INSTANCES.search(url):
                raise Unusable("the instance URL is invalid")
            if not _TOKEN.fullmatch(granted.access_token):
                raise Unusable("the access token is invalid")
            self._token = granted.access_token
            self._instance_url = url.rstrip("/")

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
                if token:
                    self.usage.count(self.now(), response.headers.get("Sforce-Limit-Info"))
                with self._checking_answer():
                    return response.status, await _read_body(response)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise self._unavailable(f"{type(error).__name__}: {error}") from error

    def _error(self, status: int, body: bytes) -> StoreError:
        code, text = answers.read_error(status, body)
        if not 400 <= status < 500 or status in (401, 429) or code in TRANSIENT_CODES:
            return self._unavailable(f"{code}: {text}")
        return answers.SalesforceRefused(code, text)

    def _unavailable(self, reason: str) -> StoreUnavailable:
        reason = answers.shortened(reason)
        return StoreUnavailable(f"Salesforce at {self.host} is not available: {reason}")


async def _read_body(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > limits.ANSWER_BYTES_MAX:
            raise Unusable(f"the answer is longer than {limits.ANSWER_BYTES_MAX} bytes")
    return bytes(body)
