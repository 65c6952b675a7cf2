"""Export metrics: over HTTP to Prometheus, or to the process that started this one and answers for
both.

Both run on a separate thread and loop: a handler that blocks the worker delays no scrape.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from itertools import islice
from logging import INFO, WARNING
from types import MappingProxyType
from typing import Any, Final

import msgspec

from holdfast.domain.errors import ConfigurationError
from holdfast.observability import exposition, logs
from holdfast.observability.metrics import Metrics, Snapshot
from holdfast.runtime.seam import Seam
from holdfast.settings import Settings
from holdfast.worker.probes import Probe
from holdfast.worker.processes.launch import Birth

REPORT_SECONDS: Final = 1.0
REPORT_BYTES_MAX: Final = 8 * 1024 * 1024
REPORTS_APART_SECONDS: Final = 0.02  # slows down a process that floods its socket
REQUEST_SECONDS_MAX: Final = 10.0
CONNECTIONS_MAX: Final = 20
END_SECONDS_MAX: Final = 2.0

_Tasks = dict[asyncio.Task[Any], None]  # oldest first
_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(Snapshot)


def exposed(
    metrics: Metrics,
    expose: Callable[[], Awaitable[str]],
    close: Callable[[], Awaitable[None]],
    settings: Settings,
    birth: Birth | None,
    seam: Seam,
    probes: Mapping[str, Probe],
) -> AbstractAsyncContextManager[str | None]:
    """Serve or report metrics, if configured. A process that was started by another one reports,
    because the other has the port."""
    if birth is not None:
        path = birth.metrics_socket
        return nullcontext() if path is None else reporting(metrics, path, seam)
    if not settings.metrics_port:
        return nullcontext()
    host, port = settings.metrics_host, settings.metrics_port
    return serving(metrics, expose, close, host, port, seam, probes)


@asynccontextmanager
async def serving(
    metrics: Metrics,
    expose: Callable[[], Awaitable[str]],
    close: Callable[[], Awaitable[None]],
    host: str,
    port: int,
    seam: Seam,
    probes: Mapping[str, Probe] = MappingProxyType({}),
) -> AsyncIterator[str]:
    """Serve what `expose` returns, and count what other processes report to the socket whose path
    the block gets. All callables run on the server's loop."""
    import shutil  # only here, where metrics are served
    import tempfile

    exposition.load_client()
    metrics.counting = True
    try:
        folder = tempfile.mkdtemp(prefix="holdfast-")  # only this user can open it
    except OSError as error:
        raise _no_place(error) from error
    path = os.path.join(folder, "metrics")
    server = _Server(metrics, expose, close, probes)
    try:
        async with _beside(seam, server.open(host, port, path), server.close):
            yield path
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _no_place(error: OSError) -> ConfigurationError:
    return ConfigurationError(
        "metrics need a writable folder for a socket, with a path of at most about 80 characters;"
        f" set TMPDIR to one: {error.strerror or error}"
    )


@asynccontextmanager
async def reporting(metrics: Metrics, path: str, seam: Seam) -> AsyncIterator[str]:
    """Report what is counted here to the process that listens at this path. The block gets the path
    for processes that it starts itself."""
    metrics.counting = True
    reporter = _Reporter(metrics, path)
    async with _beside(seam, reporter.open(), reporter.close):
        yield path


@asynccontextmanager
async def _beside(
    seam: Seam,
    opening: Coroutine[Any, Any, None],
    close: Callable[[], Coroutine[Any, Any, None]],
) -> AsyncIterator[None]:
    """Open and close on a separate thread."""
    loop = seam.side_loop("holdfast-metrics")
    try:
        await asyncio.wrap_future(loop.submit(opening))
        try:
            yield
        finally:
            await asyncio.wrap_future(loop.submit(close()))
    finally:
        loop.close()


class _Server:
    def __init__(
        self,
        metrics: Metrics,
        expose: Callable[[], Awaitable[str]],
        close: Callable[[], Awaitable[None]],
        probes: Mapping[str, Probe],
    ) -> None:
        self._metrics = metrics
        self._expose = expose
        self._close_store = close
        self._probes = probes
        self._answering: _Tasks = {}
        self._receiving: _Tasks = {}

    async def open(self, host: str, port: int, path: str) -> None:
        try:
            http = await asyncio.start_server(self._answer, host, port)
        except OSError as error:
            raise ConfigurationError(
                f"metrics can't be served on {host}:{port}: {error.strerror or error}; set another"
                " metrics_port or metrics_host"
            ) from error
        try:
            reports = await asyncio.start_unix_server(self._receive, path, limit=REPORT_BYTES_MAX)
        except OSError as error:
            http.close()
            raise _no_place(error) from error
        self._servers = (http, reports)
        logs.event(INFO, "metrics", f"served on http://{host}:{port}/metrics")

    async def close(self) -> None:
        """Drop scrapes, but wait for the last reports of other processes."""
        for server in self._servers:
            server.close()
        for task in self._answering:
            task.cancel()
        if self._receiving:
            await asyncio.wait(self._receiving, timeout=END_SECONDS_MAX)
        for task in self._receiving:
            task.cancel()
        if talking := [*self._answering, *self._receiving]:
            await asyncio.wait(talking)
        await self._close_store()

    async def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Add up what a process counts. Its gauges count as long as it is connected."""
        measured: dict[str, float] = {}
        with (
            _connection(writer, self._receiving),
            self._metrics.measuring(lambda: measured),
            suppress(ValueError),  # a report that was cut off when its process died
        ):
            while line := await reader.readline():
                report = _DECODER.decode(line)
                self._metrics.add(report)
                measured = report.gauges
                await asyncio.sleep(REPORTS_APART_SECONDS)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request. If there are too many, drop the oldest: each takes a file descriptor
        from the worker, and silent clients stay connected."""
        too_many = len(self._answering) + 1 - CONNECTIONS_MAX
        # All above the limit: connections that came in the same turn still see the oldest.
        for task in [*islice(self._answering, max(0, too_many))]:
            task.cancel()
        # Makes `drain` wait until all is sent, so that a client that doesn't read times out.
        writer.transport.set_write_buffer_limits(0)
        with (
            _connection(writer, self._answering),
            suppress(TimeoutError, EOFError, asyncio.LimitOverrunError),
        ):
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                head = await reader.readuntil(b"\r\n\r\n")
                method, target, *_ = [*head.decode("latin-1").split(" ", 2), ""]
                writer.write(await self._response(method, target.partition("?")[0]))
                await writer.drain()

    async def _response(self, method: str, path: str) -> bytes:
        if method not in ("GET", "HEAD"):
            return _response("405 Method Not Allowed", "use GET\n")
        if path in self._probes:
            answer = await self._probes[path]()
            status = "200 OK" if answer.is_well else "503 Service Unavailable"
            return _response(status, f"{answer.text}\n")
        if path != "/metrics":
            return _response("404 Not Found", "the metrics are at /metrics\n")
        text = await self._expose()
        return _response("200 OK", text, exposition.content_type(), with_body=method == "GET")


@contextmanager
def _connection(writer: asyncio.StreamWriter, tasks: _Tasks) -> Iterator[None]:
    """Register this connection's task so that it can be canceled, without an error."""
    task = asyncio.current_task()
    assert task is not None
    tasks[task] = None
    try:
        with suppress(OSError, asyncio.CancelledError):
            yield
    finally:
        tasks.pop(task)
        if writer.transport.get_write_buffer_size():
            writer.transport.abort()  # close() would wait for a client that doesn't read
        writer.close()


def _response(
    status: str,
    text: str,
    content_type: str = "text/plain; charset=utf-8",
    *,
    with_body: bool = True,
) -> bytes:
    body = text.encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + (body if with_body else b"")


class _Reporter:
    """Reports at intervals what was counted since the last report. If nobody listens any longer,
    its process is about to end."""

    def __init__(self, metrics: Metrics, path: str) -> None:
        self._metrics = metrics
        self._path = path
        self._reported = Snapshot()

    async def open(self) -> None:
        self._reporting: asyncio.Task[None] | None = None
        try:
            _, self._writer = await asyncio.open_unix_connection(self._path)
        except OSError as error:
            text = f"this process's counts are missing: {error.strerror or error}: {self._path}"
            logs.event(WARNING, "metrics", text)
        else:
            self._reporting = asyncio.create_task(self._report_all())

    async def close(self) -> None:
        if self._reporting is None:
            return
        self._reporting.cancel()
        await asyncio.gather(self._reporting, return_exceptions=True)
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(END_SECONDS_MAX):
                await self._report()
        self._writer.close()

    async def _report_all(self) -> None:
        with suppress(OSError):
            while True:
                await self._report()
                await asyncio.sleep(REPORT_SECONDS)

    async def _report(self) -> None:
        now = self._metrics.snapshot()
        news, self._reported = now.since(self._reported), now
        self._writer.write(_ENCODER.encode(news) + b"\n")
        await self._writer.drain()
