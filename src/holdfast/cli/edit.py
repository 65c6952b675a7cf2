"""Change the arguments of a requeued job, by options or in an editor."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import click

from holdfast.app import Holdfast
from holdfast.cli.session import say
from holdfast.domain.job import Job

READ_AS_JSON = (int, float, bool, type(None))


class Edit(NamedTuple):
    """The options --set, --set-json and --edit."""

    texts: tuple[str, ...]
    values: tuple[str, ...]
    in_editor: bool

    @property
    def wanted(self) -> bool:
        return bool(self.texts or self.values or self.in_editor)

    def apply(self, app: Holdfast, job: Job) -> dict[str, Any]:
        """The job's arguments, changed."""
        readable = isinstance(job.arguments, dict)
        if not readable and (self.texts or self.values):
            raise click.ClickException(
                f"the arguments of job {job.id} are not a JSON object; use --edit"
            )
        arguments: dict[str, Any] = dict(job.arguments) if readable else {}
        for written in self.texts:
            name, value = _split(written, "--set")
            arguments[name] = _read(value, arguments.get(name))
        for written in self.values:
            name, value = _split(written, "--set-json")
            arguments[name] = _parse(value, f"--set-json {name}")
        if self.in_editor:
            arguments = _edited(arguments if readable else job.arguments)
        if job.name not in app.names:
            say(f"no handler for {job.name}: the arguments were not checked; pass --app")
        return arguments


def _split(written: str, option: str) -> tuple[str, str]:
    name, equals, value = written.partition("=")
    if not (name and equals):
        raise click.UsageError(f"expected {option} NAME=VALUE, got {written!r}")
    return name, value


def _read(value: str, old: object) -> object:
    """A number, true, false or null is taken as such, unless the old value was a text."""
    if isinstance(old, str):
        return value
    try:
        read = json.loads(value)
    except ValueError:
        return value
    return read if isinstance(read, READ_AS_JSON) else value


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.ClickException(f"{where}: invalid JSON: {error}") from error


def _edited(arguments: object) -> Any:
    before = json.dumps(arguments, indent=2, ensure_ascii=False) + "\n"
    after = click.edit(before, extension=".json")
    if after is None:
        raise click.ClickException("the arguments were not saved; nothing was changed")
    return _parse(after, "the edited arguments")
