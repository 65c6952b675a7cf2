"""Serve a FastAPI application from a process of its own: `python -m package.module --port 0`."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import sys
from collections.abc import Callable
from typing import Any

from holdfast.interrupts import end_at_interrupt

GRACE_SECONDS = 3
FAILED_CODE = 1


def serve(make_app: Callable[[], Any]) -> None:
    """Serve until SIGTERM or Ctrl-C; the first line printed tells where, also when the port was
    free to choose. `make_app` imports what takes long, so that Ctrl-C ends that, too."""
    end_at_interrupt()
    import uvicorn

    options = argparse.ArgumentParser()
    options.add_argument("--host", default="127.0.0.1")
    options.add_argument("--port", type=int, default=0)
    chosen = options.parse_args()
    app = make_app()  # what fails here has told no address
    with _listen(chosen.host, chosen.port) as listening:
        # The event loop would not do it for this socket, and every answer would wait 40 ms for an
        # acknowledgement.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        host, port = listening.getsockname()[:2]
        sys.stdout.write(json.dumps({"address": f"http://{host}:{port}"}) + "\n")
        sys.stdout.flush()
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
        asyncio.run(uvicorn.Server(config).serve(sockets=[listening]))


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), backlog=128)
    except OverflowError:
        reason: str | None = "ports are from 0 to 65535"
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
    sys.stderr.write(f"holdfast: can't listen on {host}:{port}: {reason}\n")
    sys.exit(FAILED_CODE)
