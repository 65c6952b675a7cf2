"""Serve a FastAPI application in its own process: `python -m package.module --port 0`."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from holdfast.interrupts import end_at_interrupt

GRACE_SECONDS = 3
FAILED_CODE = 1


def serve(target: str, *, certified: Sequence[str] = ()) -> None:
    """Serve the application that `package.module:function` makes, until SIGTERM or Ctrl-C.

    The first line on stdout is the address, even if the port was picked by the system. The module
    is imported here, so that Ctrl-C also ends a slow import. With `certified`, the server can be
    asked for TLS, with a certificate for these hosts.
    """
    end_at_interrupt()
    import uvicorn

    chosen = _options(certified).parse_args()
    module, _, make_app = target.partition(":")
    app = getattr(import_module(module), make_app)()
    with _listen(chosen.host, chosen.port) as listening:
        # The event loop doesn't set this on a socket that it is given. Without it, every response
        # waits 40 ms for an acknowledgment.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        host, port = listening.getsockname()[:2]
        tls = _tls(chosen.tls, certified) if certified and chosen.tls else {}
        address = f"{'https' if tls else 'http'}://{host}:{port}"
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=GRACE_SECONDS,
            **tls,
        )
        sys.stdout.write(json.dumps({"address": address}) + "\n")
        sys.stdout.flush()
        asyncio.run(uvicorn.Server(config).serve(sockets=[listening]))


def _options(certified: Sequence[str]) -> argparse.ArgumentParser:
    options = argparse.ArgumentParser()
    options.add_argument("--host", default="127.0.0.1")
    options.add_argument("--port", type=int, default=0, help="0, the default, picks a free one")
    if certified:
        options.add_argument(
            "--tls",
            type=Path,
            metavar="FOLDER",
            help="serve HTTPS with a new certificate; clients trust authority.pem in this folder",
        )
    return options


def _tls(folder: Path, hosts: Sequence[str]) -> dict[str, Any]:
    from holdfast_systems.certificates import make_certificate

    try:
        made = make_certificate(folder, hosts)
    except OSError as error:
        sys.stderr.write(f"holdfast: can't write a certificate to {folder}: {error.strerror}\n")
        sys.exit(FAILED_CODE)
    return {"ssl_certfile": made.chain, "ssl_keyfile": made.key}


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), backlog=128)
    except OverflowError:
        reason: str | None = "ports are from 0 to 65535"
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
    sys.stderr.write(f"holdfast: can't listen on {host}:{port}: {reason}\n")
    sys.exit(FAILED_CODE)
