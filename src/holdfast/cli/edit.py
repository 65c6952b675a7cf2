"""Change the arguments of a requeued job, by options or in an editor."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import click

from holdfast.app import Holdfast
from holdfast.cli.session import say
from holdfast.domain.encrypted_jobs import EncryptedValue
from holdfast.domain.job import Job

READ_AS_JSON = (int, float, bool, type(None))


def edited(
    app: Holdfast, job: Job, texts: Iterable[str], values: Iterable[str], *, in_editor: bool
) -> Any:
    """Apply --set, --set-json and --edit to the job's arguments."""
    arguments: Any = job.arguments
    if isinstance(arguments, EncryptedValue):
        raise click.ClickException(
            f"the arguments of job {job.id} can't be edited: they are {arguments}, which this"
            " process doesn't have; set HOLDFAST_SECRET_KEYS, or requeue the job as it is"
        )
    if isinstance(arguments, dict):
        arguments = dict(arguments)
    elif texts or values:
        raise click.ClickException(
            f"the arguments of job {job.id} are not a JSON object; use --edit"
        )
    for written in texts:
        name, value = split_set(written, "--set")
        arguments[name] = _read(value, arguments.get(name))
    for written in values:
        name, value = split_set(written, "--set-json")
        arguments[name] = parse_json(value, f"--set-json {name}")
    if in_editor:
        arguments = _edit(arguments)
    if job.name not in app.names:
        say(f"no handler for {job.name}, so the arguments were not checked; pass --app to check")
    return arguments


def split_set(written: str, option: str) -> tuple[str, str]:
    name, equals, value = written.partition("=")
    if not (name and equals):
        raise click.UsageError(f"expected {option} NAME=VALUE, got {written!r}")
    return name, value


def _read(value: str, old: object) -> object:
    """Parse a number, true, false or null, unless the old value is a string."""
    if isinstance(old, str):
        return value
    try:
        read = json.loads(value)
    except ValueError:
        return value
    return read if isinstance(read, READ_AS_JSON) else value


def parse_json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.ClickException(f"{where}: invalid JSON: {error}") from error


def _edit(arguments: object) -> Any:
    before = json.dumps(arguments, indent=2, ensure_ascii=False) + "\n"
    after = click.edit(before, extension=".json")
    if after is None:
        raise click.ClickException("the arguments were not saved; nothing was changed")
    return parse_json(after, "the edited arguments")
