"""`holdfast jobs enqueue`: enqueue a job by its name, and wait for its end if asked to."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from holdfast.app import Holdfast
from holdfast.cli.edit import parse_json, split_set
from holdfast.cli.selection import duration, json_option, point_in_time
from holdfast.cli.session import FAILED_CODE, Command, say
from holdfast.cli.target import on_app, on_same_target
from holdfast.domain.endings import error_line
from holdfast.domain.job import Job
from holdfast.domain.signature import Signature
from holdfast.domain.spelling import did_you_mean
from holdfast.domain.states import State
from holdfast.domain.times import relative
from holdfast.job_function import JobFunction
from holdfast.observability.logs import one_line
from holdfast.runtime.backoff import Backoff
from holdfast.runtime.seam import Seam

POLL_SECONDS_MIN, POLL_SECONDS_MAX = 0.05, 1.0


@click.command(cls=Command)
@click.argument("name")
@click.option(
    "--set",
    "texts",
    multiple=True,
    metavar="NAME=VALUE",
    help="An argument: JSON if the handler accepts it as JSON, else text; repeatable.",
)
@click.option(
    "--arguments",
    "source",
    metavar="FILE|-|JSON",
    help="All arguments as a JSON object: a file, - for stdin, or the object itself.",
)
@click.option("--queue", help="Queue, instead of the job's own.")
@click.option("--priority", type=int, metavar="N", help="Priority; lower numbers run first.")
@click.option(
    "--delay",
    "delay_seconds",
    type=duration,
    metavar="TIME",
    help="Time until the job is due, for example 90s or 2h.",
)
@click.option(
    "--at",
    "run_at",
    type=point_in_time,
    metavar="TIME",
    help="Time at which the job is due, for example 2026-11-16T03:00Z.",
)
@click.option("--tenant", help="Tenant that the job belongs to.")
@click.option("--key", "idempotency_key", help="Idempotency key: used twice, it makes one job.")
@click.option("--correlation-id", metavar="ID", help="Correlation ID.")
@click.option("--tag", "tags", multiple=True, help="Tag, instead of the job's own; repeatable.")
@click.option("--max-attempts", type=int, metavar="N", help="Attempts, instead of the job's own.")
@click.option("--wait", is_flag=True, help="Wait until the job ends, and print its result.")
@json_option
@on_app
async def enqueue(
    app: Holdfast,
    name: str,
    texts: Sequence[str],
    source: str | None,
    wait: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Enqueue a job by its name.

    Checks the arguments against the handler. Prints the job's ID on stdout; with --wait, the
    result, and the exit code is 1 if the job does not succeed.

    \b
    Examples:
      holdfast jobs enqueue greet --set name=Ada --app app:hf
      holdfast jobs enqueue resize --set image=17 --set sizes='[640, 1280]'
      holdfast jobs enqueue report --arguments report.json --delay 2h --key r1
      holdfast jobs enqueue add --arguments '{"a": 1, "b": 2}' --wait
    """
    function = _find(app, name).options(**{**options, "tags": options["tags"] or None})
    arguments = add_texts(_load(source), texts, app._definitions[name].signature)
    call = function.call(**arguments)  # checks them before a file is created
    began = Seam().now()
    async with app:
        (job,) = await app.enqueue_many([call])
        _announce(job, began)
        if wait:
            job = await _follow(app, job)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(job, enc_hook=str), indent=2))
    elif wait and job.state is State.SUCCEEDED:
        click.echo(_shown(job.result))
    elif not wait:
        click.echo(job.id)
    return FAILED_CODE if wait and job.state is not State.SUCCEEDED else 0


def _find(app: Holdfast, name: str) -> JobFunction[..., Any]:
    function = app._functions.get(name)
    if function is None:
        known = ", ".join(app.names) or "none"
        hint = did_you_mean(name, app.names) or "."
        raise click.ClickException(f"no job is named {name!r}{hint} The jobs are: {known}")
    return function


def _load(source: str | None) -> dict[str, Any]:
    if source is None:
        return {}
    if source.lstrip().startswith("{"):
        text, where = source, "--arguments"
    elif source == "-":
        text, where = sys.stdin.read(), "stdin"
    else:
        where = source
        try:
            text = Path(source).read_text(encoding="utf-8")
        except OSError as error:
            raise click.ClickException(f"can't read {source}: {error.strerror}") from error
    loaded = parse_json(text, where)
    if not isinstance(loaded, dict):
        raise click.ClickException(f"{where}: the arguments must be a JSON object")
    return loaded


def add_texts(
    loaded: Mapping[str, Any], texts: Sequence[str], signature: Signature
) -> dict[str, Any]:
    """Add each --set: as JSON if it is JSON and the handler accepts that, else as text."""
    arguments = dict(loaded)
    for name, text in (split_set(written, "--set") for written in texts):
        arguments[name] = text
        try:
            value = json.loads(text)
        except ValueError:
            continue
        if isinstance(value, int | float) and _takes_numbers_as_text(signature, name, text):
            continue  # a Decimal, say: a float would change it
        # If the handler accepts neither, the error about the JSON says more.
        if _accepts(signature, name, value) or not _accepts(signature, name, text):
            arguments[name] = value
    return arguments


def _takes_numbers_as_text(signature: Signature, name: str, number: str) -> bool:
    return _accepts(signature, name, number) and not _accepts(signature, name, f"{number}?")


def _accepts(signature: Signature, name: str, value: Any) -> bool:
    try:
        if name in signature.models:
            signature.models[name].check(value)
        else:
            msgspec.json.decode(json.dumps(value), type=signature.hints.get(name, Any))
    except Exception:  # also those of a dataclass that checks itself
        return False
    return True


def _announce(job: Job, began: datetime) -> None:
    if job.idempotency_key and job.created_at < began:
        say(
            f"nothing was enqueued: the key {job.idempotency_key!r} belongs to a {job.state} job,"
            f" enqueued {relative(job.created_at, began)}. {_showing(job)}"
        )
        return
    due = relative(max(job.run_at, began), began)
    say(f"enqueued {job.name} in queue {job.queue}, due {due}. {_showing(job)}")


def _shown(value: Any) -> str:
    return json.dumps(msgspec.to_builtins(value, enc_hook=str), ensure_ascii=False)


def _showing(job: Job) -> str:
    return f"See it with: {on_same_target('holdfast jobs show')} {job.id}"


async def _follow(app: Holdfast, job: Job) -> Job:
    """Wait for the end of the job, and show what happens to it until then."""
    polling = Backoff(Seam(), POLL_SECONDS_MIN, POLL_SECONDS_MAX)
    try:
        with _Ticker() as ticker:
            while not job.state.ended:
                ticker.show(*await _standing(app, job))
                await polling.wait()
                job = await app.get(job.id)
    except asyncio.CancelledError:
        say(f"stopped waiting; the job was not canceled. {_showing(job)}")
        raise
    if job.state is not State.SUCCEEDED:
        error = error_line(job.error_code, job.error_text)
        say(f"the job ended as {job.state}: {error}. {_showing(job)}")
    return job


async def _standing(app: Holdfast, job: Job) -> tuple[object, str]:
    """What the job does or waits for, after something that changes only when that does."""
    if job.state is State.RUNNING:
        progress = "" if job.progress is None else f": {_shown(job.progress)}"
        attempt = f"attempt {job.attempts} of {job.max_attempts}"
        return (job.fence, progress), f"running, {attempt}{progress}"
    why = await app.jobs.why(job.id)
    return (why.code, why.facts.get("attempt")), why.sentence


class _Ticker:
    """One line that changes, in a terminal; elsewhere, a line for every change."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True)
        self._status = self._console.status("")
        self._last: object = None

    def __enter__(self) -> _Ticker:
        return self

    def __exit__(self, *_: Any) -> None:
        self._status.stop()

    def show(self, what: object, sentence: str) -> None:
        from rich.text import Text

        if self._console.is_terminal:
            line = Text(one_line(sentence), no_wrap=True, overflow="ellipsis")
            self._status.update(line)
            self._status.start()
        elif what != self._last:
            say(sentence)
        self._last = what
