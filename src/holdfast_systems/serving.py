"""Serve a FastAPI application from a process of its own: `python -m package.module --port 0`."""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import sys
from collections.abc import Callable
from typing import Any

import uvicorn

GRACE_SECONDS = 3


def serve(make_app: Callable[[], Any]) -> None:
    """Serve until SIGTERM; the first line printed tells where, also when the port was free to
    choose."""
    options = argparse.ArgumentParser()
    options.add_argument("--host", default="127.0.0.1")
    options.add_argument("--port", type=int, default=0)
    chosen = options.parse_args()
    app = make_app()  # what fails here has told no address
    with socket.create_server((chosen.host, chosen.port), backlog=128) as listening:
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
