"""`holdfast doctor`: how the database and what works on it are, and what to do."""

from __future__ import annotations

import json

import click
import msgspec

from holdfast.cli.session import Command, run
from holdfast.cli.target import find_target
from holdfast.domain.health.findings import Examination


@click.command(cls=Command)
@click.argument("app", metavar="[MODULE:NAME]", required=False)
@click.option("--database", metavar="URL", help="The database. Default: $HOLDFAST_DATABASE_URL.")
@click.option(
    "--transaction-seconds",
    type=click.FloatRange(min=0),
    default=300.0,
    show_default=True,
    help="Tell of transactions that have held back vacuum for longer.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object with all findings.")
def doctor(app: str | None, database: str | None, transaction_seconds: float, as_json: bool) -> int:
    """Examine the database and what works on it; change nothing.

    What is found comes with what to do, the worst first. With MODULE:NAME its settings are
    known, and its jobs are looked at, too. Exit code 0: all is fine. 1: there are warnings.
    2: something is critical, jobs stand still or may be lost.

    \b
    Examples:
      holdfast doctor app:hf
      HOLDFAST_DATABASE_URL=postgresql://localhost/shop holdfast doctor
      holdfast doctor app:hf --json | jq '.findings[] | select(.severity == "critical")'
    """
    found = run(find_target(app, database).examine(transaction_seconds=transaction_seconds))
    if app:
        found = _with_name(found, app)
    if as_json:
        whole = msgspec.to_builtins(found, enc_hook=str)
        told = {"severity": found.severity, "exit_code": found.exit_code, **whole}
        click.echo(json.dumps(told, indent=2))
    else:
        from holdfast.cli.report import print_report

        print_report(found)
    return found.exit_code


def _with_name(found: Examination, name: str) -> Examination:
    """Write the object's name into the commands, so that they can be pasted as they are."""
    findings = [
        msgspec.structs.replace(each, command=each.command.replace("MODULE:NAME", name))
        if each.command
        else each
        for each in found.findings
    ]
    return msgspec.structs.replace(found, findings=findings)
