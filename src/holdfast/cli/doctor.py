"""`holdfast doctor`: check the health of the database and its workers."""

from __future__ import annotations

import json
import os
from typing import Any

import click
import msgspec

from holdfast.cli.loop import run
from holdfast.cli.selection import json_option
from holdfast.cli.session import Command, Session
from holdfast.cli.target import ENVIRONMENT_NAME, database_option, find_target, name_of_app
from holdfast.domain.diagnosis.findings import (
    Check,
    Examination,
    Finding,
    Severity,
    naming_app,
)
from holdfast.domain.errors import ConfigurationError
from holdfast.domain.secrets import masked, shown_url


@click.command(cls=Command)
@click.argument("app", metavar="[MODULE:NAME]", required=False)
@click.option(
    "--app",
    "named",
    metavar="MODULE:NAME",
    help="Same as the argument, for consistency with other commands.",
)
@database_option
@click.option(
    "--transaction-seconds",
    type=click.FloatRange(min=0),
    metavar="N",
    default=300.0,
    show_default=True,
    help="Report transactions that have blocked vacuum for longer.",
)
@json_option
def doctor(
    app: str | None,
    named: str | None,
    database: str | None,
    transaction_seconds: float,
    as_json: bool,
) -> int:
    """Check the health of the database and its workers.

    Lists findings, worst first, each with what to do, and changes nothing. With MODULE:NAME, also
    checks its settings and jobs. The exit code is 0 if all is well, 1 if there are warnings, and 2
    if something is critical: jobs are stuck or may be lost.

    \b
    Examples:
      holdfast doctor app:hf
      HOLDFAST_DATABASE_URL=postgresql://localhost/shop holdfast doctor
      holdfast doctor app:hf --json | jq '.findings[] | select(.severity == "critical")'
    """
    app = name_of_app(app or named, database)
    try:
        target = find_target(app, database)
    except click.UsageError:
        raise
    except (click.ClickException, ConfigurationError) as error:
        if click.get_current_context().find_object(Session).debug:  # type: ignore[union-attr]
            raise
        # Just as critical as an unreachable database: scripts go by the exit code.
        finding = Finding(
            code=Check.REACHABLE,
            severity=Severity.CRITICAL,
            sentence=str(error),
            facts={"error": type(error).__name__},
        )
        given = app or database or os.environ[ENVIRONMENT_NAME]
        found = Examination(database=shown_url(given), findings=[finding])
    else:
        found = run(target.examine(transaction_seconds=transaction_seconds))
    if app:
        found = naming_app(found, app)
    if as_json:
        whole = _masked(msgspec.to_builtins(found, enc_hook=str))
        whole = {"severity": found.severity, "exit_code": found.exit_code, **whole}
        click.echo(json.dumps(whole, indent=2))
    else:
        from holdfast.cli.report import print_report

        print_report(found)
    return found.exit_code


def _masked(value: Any) -> Any:
    """Mask passwords in all strings; some come from people, or from a driver's errors."""
    match value:
        case str():
            return masked(value)
        case list():
            return [_masked(each) for each in value]
        case dict():
            return {key: _masked(each) for key, each in value.items()}
        case _:
            return value
