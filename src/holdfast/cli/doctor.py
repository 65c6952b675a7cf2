"""`holdfast doctor`: how the database and what works on it are, and what to do."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from typing import Final

import click
import msgspec

from holdfast.cli.session import Command, run
from holdfast.cli.target import find_target
from holdfast.domain.health.findings import Examination, Finding, Severity
from holdfast.observability.logs import masked, one_line

COLUMNS: Final = 80
# Words, so that they tell the same without colours.
MARKS: Final = {
    Severity.CRITICAL: ("CRITICAL", "bold red"),
    Severity.WARNING: ("WARNING", "yellow"),
    Severity.INFO: ("info", "cyan"),
    Severity.OK: ("ok", "green"),
}
MARGIN: Final = max(len(word) for word, _ in MARKS.values()) + 1


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
        _print(found)
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


def _print(found: Examination) -> None:
    _print_line(one_line(found.database), "bold")
    _print_line(_summary(found))
    before = None
    for finding in found.findings:
        # What is fine stands line by line, all else apart.
        if finding.severity is not Severity.OK or before is not Severity.OK:
            _print_line()
        _print_finding(finding)
        before = finding.severity


def _summary(found: Examination) -> str:
    counts = Counter(finding.severity for finding in found.findings)
    return ", ".join(f"{counts[each]} {each}" for each in MARKS if counts[each])


def _print_finding(finding: Finding) -> None:
    from rich.text import Text

    word, style = MARKS[finding.severity]
    first, *others = _wrapped(f"{finding.code}: {finding.sentence}")
    _print_line(Text.assemble((f"{word:<{MARGIN}}", style), first))
    for line in others:
        _print_line(f"{'':<{MARGIN}}{line}")
    if finding.advice:
        for line in _wrapped(f"-> {finding.advice}" + (":" if finding.command else "")):
            _print_line(f"{'':<{MARGIN}}{line}", style)
    if finding.command:
        # In one piece, however long: it is to be pasted.
        _print_line(f"{'':<{MARGIN}}   {one_line(finding.command)}", "bold")


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(one_line(masked(text)), COLUMNS - MARGIN, break_on_hyphens=False)


def _print_line(line: object = "", style: str = "") -> None:
    from holdfast.cli.display import console

    console().print(line, style=style, markup=False, soft_wrap=True)
