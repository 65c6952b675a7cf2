"""What an examination finds: a code, how bad it is, one sentence, what to do, and the facts."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec


class Severity(StrEnum):
    """`info` is worth to know and needs nothing; `critical` means that jobs stand still, or may be
    lost."""

    OK = "ok"
    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        return list(Severity).index(self)

    @property
    def exit_code(self) -> int:
        return max(0, self.rank - 1)


class Check(StrEnum):
    """All that is looked at, in the order of the report. `docs/reference/doctor.md` explains
    each."""

    REACHABLE = "reachable"
    SCHEMA = "schema"
    ENCODING = "encoding"
    WRITABLE = "writable"
    DURABILITY = "durability"
    CLOCK = "clock"
    CONNECTIONS = "connections"
    POOLER = "pooler"
    WAKEUPS = "wakeups"
    WORKERS = "workers"
    VERSIONS = "versions"
    LEASES = "leases"
    QUEUES = "queues"
    NAMES = "names"
    SLOTS = "slots"
    PAUSED = "paused"
    CAPS = "caps"
    BREAKERS = "breakers"
    FAILURES = "failures"
    TIMEOUTS = "timeouts"
    VACUUM = "vacuum"
    DEAD_ROWS = "dead_rows"
    INDEXES = "indexes"
    HISTORY = "history"
    DISK = "disk"
    FILE_SYSTEM = "file_system"
    JOURNAL = "journal"
    INTEGRITY = "integrity"
    UNREAD = "unread"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """`advice` says what to do, and `command` is what to paste, where there is such a thing; in it
    MODULE:NAME stands for the Holdfast object."""

    code: Check
    severity: Severity
    sentence: str
    advice: str | None = None
    command: str | None = None
    facts: dict[str, Any] = {}


class Examination(msgspec.Struct, frozen=True, kw_only=True):
    """The findings, the worst first, and within the same severity in the order of the checks."""

    database: str
    findings: Sequence[Finding]

    @property
    def severity(self) -> Severity:
        return max((each.severity for each in self.findings), key=lambda each: each.rank)

    @property
    def exit_code(self) -> int:
        """0 if all is fine, 1 with warnings, 2 if something is critical."""
        return self.severity.exit_code


def fine(code: Check, sentence: str, **facts: Any) -> Finding:
    return Finding(code=code, severity=Severity.OK, sentence=sentence, facts=facts)


def worst_first(findings: Sequence[Finding]) -> list[Finding]:
    order = list(Check)
    return sorted(findings, key=lambda each: (-each.severity.rank, order.index(each.code)))
