"""A password is given to commands, workers and libraries that fail in every way; none tells it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import struct
import threading
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

import pytest

from holdfast import Holdfast, HoldfastError
from holdfast.cli.main import run
from tests.promises.stage import Stage
from tests.support.crashing import started
from tests.support.postgres import free_port
from tests.support.scraping import scraped

CANARY = "c4n4ry"
COMMANDS = [
    ["doctor"],
    ["doctor", "--json"],
    ["migrate", "--debug"],
    ["jobs", "list", "--debug"],
]
# Where a character of the password should have been escaped, and names that are no user's.
UNREADABLE = [
    f"postgresql://u:{CANARY}@x@127.0.0.1:PORT/d",
    f"postgresql://u:x@{CANARY}@127.0.0.1:PORT/d",
    f"postgresql://u:{CANARY}/x@127.0.0.1:PORT/d",
    f"postgresql://u:1/{CANARY}@127.0.0.1:PORT/d",
    f"postgresql://u:1?{CANARY}@127.0.0.1:PORT/d",
    f"postgresql://u:1#{CANARY}@127.0.0.1:PORT/d",
    f"postgresql://u:{CANARY}#1@127.0.0.1:PORT/d",
    f"postgresql://u:[{CANARY}@127.0.0.1:PORT/d",
    f"postgresql://u:{CANARY}@127.0.0.1:x/d",
    f"postgresql://u:{CANARY}@127.0.0.1:PORT/d?statement_cache_size=x",
    f"postgresql://127.0.0.1:PORT/d?password={CANARY}&user=u&sslmode=x",
    f"host=127.0.0.1 port=PORT user=u password={CANARY}",
    f"u:{CANARY}@127.0.0.1:PORT/d",
    f"postgersql://u:{CANARY}@127.0.0.1:PORT/d",
    f"sqlite://u:{CANARY}@127.0.0.1:PORT/d",
    f"salesforce://key:{CANARY}@127.0.0.1:PORT/x/y?z",
]
# Addresses that can be read, but nobody answers there.
READABLE = [
    f"postgresql://u:{CANARY}@127.0.0.1:PORT/d",
    f"postgresql://u:{CANARY}%40%2F@[::1]:PORT/d",
    f"postgresql://u:{CANARY}@127.0.0.1:PORT,127.0.0.1:PORT/d",
    f"postgresql:///d?host=127.0.0.1&port=PORT&user=u&password={CANARY}",
    f"salesforce+http://key:{CANARY}@127.0.0.1:PORT",
]


def error(text: str) -> bytes:
    fields = b"".join(
        kind + value.encode() + b"\0" for kind, value in ((b"S", "FATAL"), (b"C", "28P01"))
    )
    body = fields + b"M" + text.encode() + b"\0\0"
    return b"E" + struct.pack("!I", len(body) + 4) + body


SERVERS = {
    "garbage": b"\0\x01" * 500,
    "silence": b"",
    "refusal": error('password authentication failed for user "u"'),
    "a refusal that quotes": error(f"no: postgresql://u:{CANARY}@h/d password='{CANARY} {CANARY}'"),
    "broken TLS": b"S" + b"\0" * 100,
    "http": b"HTTP/1.1 400 Bad Request\r\n\r\n",
}


@contextmanager
def answering(said: bytes) -> Iterator[int]:
    """A server that says this to everybody, and nothing else."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client, _ = server.accept()
                    with client, suppress(OSError):
                        client.recv(10_000)
                        client.sendall(said)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def told_by_commands(url: str, capfd: pytest.CaptureFixture[str]) -> str:
    codes = [run([*command, "--database", url]) for command in COMMANDS]
    assert all(codes), "each of them fails"
    captured = capfd.readouterr()
    return captured.out + captured.err


async def told_by_library(url: str) -> str:
    """All that Python would tell of the error, with those that led to it."""
    try:
        hf = Holdfast(url)
        assert CANARY not in f"{hf!r} {hf} {hf.url_shown}"
        async with hf:
            await hf.get(uuid4())
    except HoldfastError as error:
        return "".join(traceback.format_exception(error))
    raise AssertionError("it fails")


@pytest.mark.parametrize("url", UNREADABLE + READABLE)
def test_no_address_is_told_with_its_password(url: str, capfd: pytest.CaptureFixture[str]) -> None:
    url = url.replace("PORT", str(free_port()))
    assert CANARY not in told_by_commands(url, capfd)
    assert CANARY not in asyncio.run(told_by_library(url))


@pytest.mark.parametrize("server", SERVERS)
def test_no_server_makes_us_tell_the_password(
    server: str, capfd: pytest.CaptureFixture[str]
) -> None:
    mode = "require" if server == "broken TLS" else "disable"
    with answering(SERVERS[server]) as port:
        url = f"postgresql://u:{CANARY}@127.0.0.1:{port}/d?sslmode={mode}"
        assert CANARY not in told_by_commands(url, capfd)


@pytest.fixture
async def stage(postgres_url: str, tmp_path: Path) -> AsyncIterator[Stage]:
    head, _, host = postgres_url.rpartition("@")
    user = head.rpartition("/")[2]
    made = Stage(f"postgresql://{user}:{quote(CANARY + '@/?#', safe='')}@{host}", tmp_path)
    try:
        await made.hf.migrate()
        yield made
    finally:
        await made.close()


def command_lines() -> str:
    """Those of all processes of this machine, as `ps` shows them."""
    told = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            told.append((process / "cmdline").read_text(errors="replace"))
    return "\n".join(told)


async def test_a_worker_and_its_processes_never_tell_the_password(stage: Stage) -> None:
    port = free_port()
    quoting = f"can't reach {stage.url}: password='{CANARY}'"
    failing = await stage.jobs.hopeless.enqueue(quoting)
    worker = stage.worker(f"--metrics-port={port}", "--processes=2")
    (failed,) = await stage.ended(failing)
    told = await scraped(port, "holdfast_failed_total", 1, state="failed")
    assert CANARY not in told.text
    assert CANARY not in command_lines()
    assert CANARY not in (failed.error_text or "")
    assert "***" in (failed.error_text or "")
    os.kill(started(worker)[0], signal.SIGKILL)
    await worker.logs("child_restarts")
    worker.signal(signal.SIGTERM)
    await worker.ended()
    assert CANARY not in worker.text
    assert CANARY not in "\n".join(worker.output)
    attempts = await stage.hf.jobs.attempts(failing.id)
    assert CANARY not in repr([each.error_text for each in attempts])
