"""Print what doctor found, worst first, at most 80 columns wide."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator
from typing import Final

from rich.text import Text

from holdfast.cli.display import console
from holdfast.domain.diagnosis.findings import Examination, Finding, Severity
from holdfast.domain.secrets import masked
from holdfast.observability.logs import one_line

COLUMNS_MAX: Final = 80
COLUMNS_MIN: Final = 40
# Words, so that the report reads the same without colors.
MARKS: Final = {
    Severity.CRITICAL: ("CRITICAL", "bold red"),
    Severity.WARNING: ("WARNING", "yellow"),
    Severity.INFO: ("info", "cyan"),
    Severity.OK: ("ok", "green"),
}
MARGIN: Final = max(len(word) for word, _ in MARKS.values()) + 1
INDENT: Final = " " * MARGIN


def print_report(found: Examination) -> None:
    out = console()
    columns = max(COLUMNS_MIN, min(COLUMNS_MAX, out.width))
    counts = Counter(finding.severity for finding in found.findings)
    lines = [
        Text(one_line(found.database), "bold"),
        Text(", ".join(_count(counts[each], each) for each in MARKS if counts[each])),
    ]
    before = None
    for finding in found.findings:
        # A blank line sets off every finding, except between those that are ok.
        if finding.severity is not Severity.OK or before is not Severity.OK:
            lines.append(Text())
        lines += _lines(finding, columns)
        before = finding.severity
    for line in lines:
        out.print(line, soft_wrap=True)


def _count(findings: int, severity: Severity) -> str:
    plural = "s" if severity is Severity.WARNING and findings > 1 else ""
    return f"{findings} {severity}{plural}"


def _lines(finding: Finding, columns: int) -> Iterator[Text]:
    word, style = MARKS[finding.severity]
    first, *others = _wrapped(f"{finding.code}: {finding.sentence}", columns)
    yield Text.assemble((f"{word:<{MARGIN}}", style), first)
    for line in others:
        yield Text(f"{INDENT}{line}")
    if finding.advice:
        ending = ":" if finding.command else ""
        for line in _wrapped(f"-> {finding.advice}{ending}", columns):
            yield Text(f"{INDENT}{line}")
    if finding.command:
        # Never wrapped, so that it can be pasted.
        yield Text(f"{INDENT}   {one_line(finding.command)}", "bold")


def _wrapped(text: str, columns: int) -> list[str]:
    hanging = "   " if text.startswith("->") else ""
    return textwrap.wrap(
        one_line(masked(text)),
        columns - MARGIN,
        subsequent_indent=hanging,
        break_on_hyphens=False,
    )
