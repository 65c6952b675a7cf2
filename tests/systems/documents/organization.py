"""A local Salesforce in its own process, and the third-party client that checks it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from simple_salesforce.api import Salesforce, SFType

DATA = "/services/data/v59.0"
DOCUMENT = "Generated_Document__c"


@contextmanager
def local_salesforce(*options: str) -> Iterator[str]:
    """Serve a new organization and yield its address."""
    command = [
        sys.executable,
        "-m",
        "holdfast_systems.documents.salesforce.local",
        "--port",
        "0",
        *options,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            address = json.loads(process.stdout.readline())["address"]
            yield address
        finally:
            process.terminate()


class Loopback(HTTPAdapter):
    """Sends requests for https://*.salesforce.com to the local one, like a proxy that ends TLS."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self._address = address

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> Any:
        wanted = urlsplit(request.url or "")
        request.headers["Host"] = wanted.netloc
        request.headers["X-Forwarded-Proto"] = "https"
        request.url = f"{self._address}{wanted.path}?{wanted.query}".rstrip("?")
        return super().send(request, *args, **options)


@contextmanager
def session_to(address: str) -> Iterator[requests.Session]:
    with requests.Session() as session:
        session.trust_env = False
        session.mount("https://", Loopback(address))
        yield session


def log_in(session: requests.Session, user: str) -> Salesforce:
    return Salesforce(
        consumer_key=user,
        consumer_secret=f"{user}-secret",
        domain="local.my",
        session=session,
    )


def records_of(salesforce: Salesforce, name: str = DOCUMENT) -> SFType:
    """Return the client's `salesforce.<name>`, typed."""
    records = getattr(salesforce, name)
    assert isinstance(records, SFType)
    return records


def switch(address: str, method: str, name: str, body: Any = None) -> Any:
    """Use one of the switches for tests."""
    answer = requests.request(method, f"{address}/_local/{name}", json=body, timeout=60)
    answer.raise_for_status()
    return answer.json() if answer.content else None


def document(**fields: object) -> dict[str, object]:
    return {"attributes": {"type": DOCUMENT}, "Template__c": "invoice", **fields}
