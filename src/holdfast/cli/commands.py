"""The list of commands. The module of a command is imported when somebody runs that command."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final

import click

from holdfast.cli.session import Group

# Where each command is, and its line in the list: one that fits into 80 columns.
COMMANDS: Final = {
    "audit": ("holdfast.cli.audit", "List and export the audit log."),
    "breakers": ("holdfast.cli.breakers", "List, open, close and reset breakers."),
    "bulk": ("holdfast.cli.bulk", "List, start, pause, resume and cancel bulk changes."),
    "dashboard": ("holdfast.cli.dashboard", "Show the dashboard of a database."),
    "dead": ("holdfast.cli.dead", "Inspect and requeue dead and failed jobs."),
    "demo": ("holdfast.cli.demo", "Run one of the five systems end to end, or all of them."),
    "dev": ("holdfast.cli.dev", "Serve the API and run a worker; restart both on changes."),
    "doctor": ("holdfast.cli.doctor", "Check the health of the database and its workers."),
    "jobs": ("holdfast.cli.jobs", "Enqueue, inspect, cancel and retry jobs."),
    "keys": ("holdfast.cli.keys", "Create, list, rotate and revoke keys of the HTTP API."),
    "messages": ("holdfast.cli.messages", "Inspect and resend messages of Azure Service Bus."),
    "migrate": ("holdfast.cli.migrate", "Migrate the database schema to this code's version."),
    "queues": ("holdfast.cli.queues", "List, pause, cap, drain and purge queues."),
    "roles": ("holdfast.cli.roles", "Give each kind of process its own database role."),
    "secrets": ("holdfast.cli.secrets", "Rotate the keys that encrypt secrets in the database."),
    "serve": ("holdfast.cli.serve", "Serve the HTTP API and the dashboard."),
    "servicebus-local": (
        "holdfast.cli.servicebus_local",
        "Run an Azure Service Bus for development.",
    ),
    "top": ("holdfast.cli.top.command", "Watch queues, workers and failures, live."),
    "webhooks": ("holdfast.cli.webhooks.command", "Manage webhooks and what they deliver."),
    "worker": ("holdfast.cli.worker", "Run the jobs of a Holdfast object."),
    "workers": ("holdfast.cli.workers", "List workers with their queues and last heartbeat."),
}


class _Imported(Mapping[str, click.Command]):
    def __getitem__(self, name: str) -> click.Command:
        module, _ = COMMANDS[name]
        command: click.Command = getattr(import_module(module), name.replace("-", "_"))
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class Commands(Group):
    """The group of all commands."""

    def __init__(self, **options: Any) -> None:
        super().__init__(commands=_Imported(), **options)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])
