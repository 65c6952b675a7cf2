"""Serve a FastAPI application in its own process: `python -m package.module --port 0`."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import sys
from importlib import import_module

from holdfast.interrupts import end_at_interrupt

GRACE_SECONDS = 3
FAILED_CODE = 1


def serve(target: str) -> None:
    """Serve the application that `package.module:function` makes, until SIGTERM or Ctrl-C.

    The first line on stdout is the address, even if the port was picked by the system. The module
    is imported here, so that Ctrl-C also ends a slow import.
    """
    end_at_interrupt()
    import uvicorn

    options = argparse.ArgumentParser()
    options.add_argument("--host", default="127.0.0.1")
    options.add_argument("--port", type=int, default=0)
    chosen = options.parse_args()
    module, _, make_app = target.partition(":")
    app = getattr(import_module(module), make_app)()
    with _listen(chosen.host, chosen.port) as listening:
        # The event loop doesn't set this on a socket that it is given. Without it, every response
        # waits 40 ms for an acknowledgment.
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
