"""Serve the HTTP API with uvicorn, alone or with a worker in the same process."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
from collections.abc import Coroutine, Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from logging import ERROR, INFO
from typing import Any, Final

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.api.connections import ConnectionLimits, fastest
from holdfast.api.limits import KEEP_ALIVE_SECONDS
from holdfast.api.problems import Problem, unavailable
from holdfast.api.service import Service
from holdfast.domain.errors import ConfigurationError
from holdfast.observability import logs
from holdfast.worker.deadline import StopDeadline
from holdfast.worker.signals import handling_signals

GRACE_SECONDS: Final = 3.0
BACKLOG: Final = 1024
TICK_SECONDS: Final = 0.1  # uvicorn counts ten ticks as a second

_STOPPING: Final = unavailable("the server is stopping", "not-ready")
_TWO_LENGTHS: Final = Problem(
    "bad-request",
    "send either Content-Length or Transfer-Encoding, not both",
    headers={"connection": "close"},
)


class Server(uvicorn.Server):
    """A server that leaves signals to its caller, and ends waiting requests when it stops."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service = service
        self._stopped = asyncio.Event()

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        async with self.service.running():
            await super().serve(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        for listening in sockets or ():
            # The event loop doesn't set this on a socket that it is given. Without it, every
            # response waits 40 ms for an acknowledgment.
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await super().startup(sockets)
        for listening in sockets or ():
            logs.event(INFO, "serving", address_of(listening))

    async def main_loop(self) -> None:
        """Tick as uvicorn does, but exit at once when stopped."""
        ticks = 0
        while not await self.on_tick(ticks):
            ticks += 1
            with suppress(TimeoutError):
                async with asyncio.timeout(TICK_SECONDS):
                    await self._stopped.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.service.stopping.set()
        await super().shutdown(sockets)

    def stop(self) -> None:
        """Stop when the requests in flight are answered. A second call cuts them off."""
        if self.should_exit:
            for task in self.server_state.tasks:
                task.cancel()
        self.should_exit = True
        self._stopped.set()


def make_server(
    api: FastAPI,
    *,
    grace_seconds: float = GRACE_SECONDS,
    proxies: str | None = None,
    limits: ConnectionLimits = ConnectionLimits(),  # noqa: B008
    protocol: type[Any] | None = None,
) -> Server:
    """`proxies` are the addresses whose `X-Forwarded-For` is trusted: by default, none."""
    config = uvicorn.Config(
        _Outermost(api),
        http=partial(protocol or fastest(), limits=limits),  # type: ignore[arg-type, misc]
        h11_max_incomplete_event_size=2 * limits.head_bytes,  # our own limit comes first
        ws="none",
        lifespan="off",
        log_config=None,
        log_level=ERROR,
        access_log=False,
        server_header=False,
        proxy_headers=proxies is not None,
        forwarded_allow_ips=proxies,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=grace_seconds,  # type: ignore[arg-type]
    )
    return Server(config, api.state.service)


class _Outermost:
    """Handles what uvicorn would answer in plain text and log a second time."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if _has_two_lengths(scope["headers"]):
                await _TWO_LENGTHS.response()(scope, receive, send)
            else:
                await self._app(scope, receive, send)
        except Exception:
            return  # already logged
        except asyncio.CancelledError:
            with suppress(RuntimeError):  # the response has begun
                await _STOPPING.response()(scope, receive, send)


def _has_two_lengths(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """A proxy may use one length and we the other, and so see different requests in the same bytes.
    Only one of uvicorn's parsers rejects that."""
    names = [name for name, _ in headers]
    return b"transfer-encoding" in names and b"content-length" in names


async def serve(
    server: Server, listening: socket.socket, work: Coroutine[Any, Any, Any] | None = None
) -> None:
    """Serve until SIGTERM or SIGINT. `work` is a worker that runs beside the server. If one of them
    ends, so does the other, and its error is raised."""
    hf = server.service.hf
    deadline = StopDeadline(hf._seam, hf.settings.grace_seconds, ends_process=True)
    workers: list[asyncio.Task[Any]] = []

    def stop() -> None:
        server.stop()
        for worker in workers:
            worker.cancel()  # it finishes or releases its jobs

    def on_signal(number: signal.Signals) -> None:
        text = f"{number.name}: finishing requests in flight"
        logs.event(INFO, "shutdown", text, count=server.service.traffic.in_flight)
        stop()

    async with handling_signals(hf._seam, on_signal, deadline.start):
        serving = asyncio.create_task(server.serve([listening]))
        if work is not None:
            workers.append(asyncio.create_task(work))
            server.service.health.add("worker", partial(_is_running, workers[0]))
        await asyncio.wait({serving, *workers}, return_when=asyncio.FIRST_COMPLETED)
        if not server.should_exit:
            stop()
        await asyncio.wait({serving, *workers})
    for part in (*workers, serving):
        if not part.cancelled():
            part.result()


async def _is_running(worker: asyncio.Task[Any]) -> bool:
    return not worker.done()


def listen(host: str, port: int) -> socket.socket:
    """Listen, or raise ConfigurationError with the reason."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        return socket.create_server(address, family=family, backlog=BACKLOG)
    except (OSError, UnicodeError) as error:
        number = getattr(error, "errno", None) or 0
        # Python adds the address to the text of the system's errors.
        reason = os.strerror(number) if number > 0 else getattr(error, "strerror", error)
        hint = "; choose another with --port" if number == errno.EADDRINUSE else ""
        raise ConfigurationError(
            f"can't listen on {_joined(host, port)}: {reason}{hint}"
        ) from error


def address_of(listening: socket.socket) -> str:
    host, port, *_ = listening.getsockname()
    return f"http://{_joined(host, port)}"


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
