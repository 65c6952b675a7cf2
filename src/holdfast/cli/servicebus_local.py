"""`holdfast servicebus-local`: an Azure Service Bus for development, on this machine."""

from __future__ import annotations

import signal
import threading

import click

from holdfast.cli.session import Command, say
from holdfast.domain.errors import ConfigurationError

HOST = "127.0.0.1"
PORT = 5672
QUEUE = "holdfast.jobs"
LOCK_SECONDS = 30.0
DELIVERIES = 10


@click.command("servicebus-local", cls=Command)
@click.option("--host", default=HOST, show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    metavar="PORT",
    help="Port to listen on. 0 picks a free one.",
)
@click.option(
    "--queue",
    "queues",
    multiple=True,
    default=(QUEUE,),
    show_default=True,
    metavar="NAME",
    help="A queue to create. Can be repeated.",
)
@click.option(
    "--lock-seconds",
    type=float,
    default=LOCK_SECONDS,
    show_default=True,
    help="Seconds that a received message stays locked.",
)
@click.option(
    "--max-deliveries",
    type=int,
    default=DELIVERIES,
    show_default=True,
    help="Failed deliveries after which a message becomes a dead letter.",
)
def servicebus_local(
    host: str, port: int, queues: tuple[str, ...], lock_seconds: float, max_deliveries: int
) -> None:
    """Run an Azure Service Bus for development until Ctrl-C.

    Prints the connection string for Azure's clients. Queues live in memory, there is no TLS, and
    everybody knows the key: never let others reach it.

    \b
    Example:
      holdfast servicebus-local --queue holdfast.jobs --queue mail --lock-seconds 5
    """
    try:
        from holdfast.servicebus_local import LocalServiceBus, QueueOptions
    except ImportError as error:
        raise ConfigurationError(
            f"the local Service Bus needs an extra package ({error});"
            " run: pip install 'holdfast[servicebus-local]'"
        ) from error
    options = QueueOptions(lock_seconds=lock_seconds, deliveries_max=max_deliveries)
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    with LocalServiceBus(queues=dict.fromkeys(queues, options), host=host, port=port) as bus:
        click.echo(bus.connection_string)
        say(f"serving {', '.join(queues)} at {host}:{bus.port}; press Ctrl-C to stop")
        stopping.wait()
