"""`holdfast dashboard`: the pages of any Holdfast database, for reading only."""

from __future__ import annotations

import socket
from typing import Any

import click

from holdfast.app import Holdfast
from holdfast.cli.log_options import configure_logs, log_options
from holdfast.cli.loop import run
from holdfast.cli.serve import (
    HOST,
    PORT,
    MakePages,
    check_database,
    check_pages_installed,
    pages_for,
)
from holdfast.cli.session import Command
from holdfast.cli.target import ENVIRONMENT_NAME, check_exists


@click.command(cls=Command)
@click.option(
    "--database",
    metavar="URL",
    envvar=ENVIRONMENT_NAME,
    help=f"Database URL. Default: ${ENVIRONMENT_NAME}.",
)
@click.option("--host", default=HOST, show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    metavar="PORT",
    help="Port to listen on. 0 picks a free one; the log says which.",
)
@click.option(
    "--proxies",
    metavar="ADDRESSES",
    help="Trust X-Forwarded-For from these addresses, for example 10.0.0.0/8. Default: none.",
)
@click.option(
    "--hosts",
    metavar="NAMES",
    help="Host names that the dashboard answers to, for example jobs.example.com. Default: any.",
)
@log_options
def dashboard(
    database: str | None,
    host: str,
    port: int,
    proxies: str | None,
    hosts: str | None,
    **log_choices: Any,
) -> None:
    """Show the dashboard of a database, without its application, until SIGTERM or Ctrl-C.

    It changes nothing: there are no forms, and the database itself refuses to write. A database
    role that may only read will do. There is no HTTP API.

    Without keys, only this machine is served. Once there are keys, log in with one.

    \b
    Examples:
      holdfast dashboard --database sqlite:///holdfast.db
      holdfast dashboard --database postgresql://holdfast_readonly@db/jobs --port 8001
    """
    if not database:
        raise click.UsageError(
            f"no database given; pass --database URL, or set ${ENVIRONMENT_NAME}"
        )
    check_pages_installed()
    found = Holdfast(database, read_only=True)
    check_exists(found)
    configure_logs(found, **log_choices)
    from holdfast.api.server import listen

    run(_serve(found, listen(host, port), host, proxies, pages_for(hosts)))


async def _serve(
    hf: Holdfast, listening: socket.socket, host: str, proxies: str | None, pages: MakePages
) -> None:
    from holdfast.api import make_api, server

    try:
        api = make_api(hf, pages=pages)
        await check_database(api.state.service.gate.check_open_to(host))
        await server.serve(server.make_server(api, proxies=proxies), listening)
    finally:
        await hf.close()
