"""The local Salesforce over TLS, reached by clients that check its certificate."""

from __future__ import annotations

import os
import socket
import socketserver
import ssl
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import certifi
import pytest
import requests
from requests.adapters import HTTPAdapter
from simple_salesforce.api import Salesforce

from tests.support.processes import PROGRAM_SECONDS_MAX
from tests.systems.documents.organization import (
    DOCUMENT,
    document,
    local_salesforce,
    log_in,
    records_of,
)

pytestmark = pytest.mark.heavy

COUNT = f"""
import asyncio, sys
from holdfast_systems.documents.salesforce.client import Salesforce

async def main():
    async with Salesforce(sys.argv[1]) as salesforce:
        print(len(await salesforce.query("SELECT Id FROM {DOCUMENT}")))

asyncio.run(main())
"""


class Tunnel(socketserver.BaseRequestHandler):
    """Answers CONNECT like any HTTP proxy, but with a connection to the local Salesforce."""

    target = ("127.0.0.1", 0)

    def handle(self) -> None:
        asked = b""
        while b"\r\n\r\n" not in asked:
            asked += self.request.recv(4096)
        assert asked.startswith(b"CONNECT local.my.salesforce.com:443 ")
        with socket.create_connection(self.target) as server:
            self.request.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            back = threading.Thread(target=copy, args=(server, self.request), daemon=True)
            back.start()
            copy(self.request, server)
            back.join()


def copy(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:  # the other end is gone
        pass


@contextmanager
def tunnel_to(address: str) -> Iterator[str]:
    """Run a proxy for the address; yield its URL."""
    parts = urlsplit(address)
    assert parts.hostname
    assert parts.port
    handler = type("Handler", (Tunnel,), {"target": (parts.hostname, parts.port)})
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as proxy:
        proxy.daemon_threads = True
        running = threading.Thread(target=proxy.serve_forever, args=(0.05,))
        running.start()
        try:
            yield f"http://127.0.0.1:{proxy.server_address[1]}"
        finally:
            proxy.shutdown()
            running.join()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with local_salesforce("--tls", str(folder)) as made:
        yield made


class Tunneled(HTTPAdapter):
    """Sends requests through a proxy, and trusts servers that this authority vouches for."""

    def __init__(self, proxy: str, authority: Path | None) -> None:
        super().__init__()
        self._options = {"proxies": {"https": proxy}, "verify": str(authority or certifi.where())}

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> Any:
        return super().send(request, *args, **{**options, **self._options})


@contextmanager
def salesforce_over_tls(proxy: str, authority: Path | None = None) -> Iterator[Salesforce]:
    with requests.Session() as session:
        session.trust_env = False
        session.mount("https://", Tunneled(proxy, authority))
        yield log_in(session, "integration")


def test_simple_salesforce_works_over_tls_as_with_the_real_one(address: str, folder: Path) -> None:
    with (
        tunnel_to(address) as proxy,
        salesforce_over_tls(proxy, folder / "authority.pem") as salesforce,
    ):
        assert salesforce.sf_instance == "local.my.salesforce.com"
        made = records_of(salesforce).create(document())
        assert records_of(salesforce).get(made["id"])["Status__c"] == "QUEUED"


def test_simple_salesforce_refuses_a_certificate_that_it_does_not_trust(address: str) -> None:
    with (
        tunnel_to(address) as proxy,
        pytest.raises(requests.exceptions.SSLError),
        salesforce_over_tls(proxy),
    ):
        pytest.fail("the client trusts an unknown authority")


def test_our_client_checks_the_certificate(address: str, folder: Path) -> None:
    host = address.replace("https://127.0.0.1", "localhost")
    url = f"salesforce://integration:integration-secret@{host}"
    environment = {**os.environ, "SSL_CERT_FILE": str(folder / "authority.pem")}

    trusting = count_records(url, environment)
    environment.pop("SSL_CERT_FILE")
    untrusting = count_records(url, environment)

    assert trusting.returncode == 0, trusting.stderr
    assert int(trusting.stdout) >= 0
    assert untrusting.returncode != 0
    assert "certificate" in untrusting.stderr
    assert "integration-secret" not in untrusting.stderr


def count_records(url: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", COUNT, url],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS_MAX,
        check=False,
    )


def test_only_the_owner_can_read_the_key_and_the_authority_signs_nothing_else(
    address: str, folder: Path
) -> None:
    assert address.startswith("https://")
    assert stat.S_IMODE((folder / "server.key").stat().st_mode) == 0o600
    assert sorted(path.name for path in folder.iterdir()) == [
        "authority.pem",
        "server.key",
        "server.pem",
    ]


def test_the_certificate_passes_the_strictest_checks(address: str, folder: Path) -> None:
    context = ssl.create_default_context(cafile=folder / "authority.pem")
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    parts = urlsplit(address)
    assert parts.port

    for name in ("localhost", "local.my.salesforce.com", "127.0.0.1"):
        with (
            socket.create_connection(("127.0.0.1", parts.port)) as plain,
            context.wrap_socket(plain, server_hostname=name) as secured,
        ):
            assert secured.version() in ("TLSv1.2", "TLSv1.3")
    with (
        socket.create_connection(("127.0.0.1", parts.port)) as plain,
        pytest.raises(ssl.SSLCertVerificationError),
    ):
        context.wrap_socket(plain, server_hostname="elsewhere.example")


def test_a_folder_that_can_not_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    started = subprocess.run(
        [
            sys.executable,
            "-m",
            "holdfast_systems.documents.salesforce.local",
            "--tls",
            str(tmp_path / "file"),
        ],
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS_MAX,
        check=False,
    )
    assert started.returncode == 1
    assert started.stderr == (
        f"holdfast: can't write a certificate to {tmp_path / 'file'}: File exists\n"
    )
