"""The findings of an examination: each says what is the matter and what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from typing import Any, Final

import msgspec

APP_PLACEHOLDER: Final = "MODULE:NAME"


class Severity(StrEnum):
    """`info` needs no action; `critical` means that jobs are stuck or may be lost."""

    OK = "ok"
    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """Higher is worse."""
        return list(Severity).index(self)


class Check(StrEnum):
    """The checks, in the order of the report. `docs/reference/doctor.md` explains each one."""

    REACHABLE = "reachable"
    SCHEMA = "schema"
    ENCODING = "encoding"
    WRITABLE = "writable"
    REPLICA = "replica"
    DURABILITY = "durability"
    CLOCK = "clock"
    CONNECTIONS = "connections"
    POOLER = "pooler"
    WAKEUPS = "wakeups"
    MESSENGERS = "messengers"
    WORKERS = "workers"
    VERSIONS = "versions"
    LEASES = "leases"
    QUEUES = "queues"
    NAMES = "names"
    ARGUMENTS = "arguments"
    SLOTS = "slots"
    PAUSED = "paused"
    CAPS = "caps"
    BREAKERS = "breakers"
    FAILURES = "failures"
    TIMEOUTS = "timeouts"
    SECRETS = "secrets"
    VACUUM = "vacuum"
    DEAD_ROWS = "dead_rows"
    INDEXES = "indexes"
    HISTORY = "history"
    ROLES = "roles"
    DISK = "disk"
    FILE_SYSTEM = "file_system"
    JOURNAL = "journal"
    INTEGRITY = "integrity"
    UNREAD = "unread"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check: `advice` says what to do, and `command` is what to paste.

    In both, MODULE:NAME stands for the Holdfast object.
    """

    code: Check
    severity: Severity
    sentence: str
    advice: str | None = None
    command: str | None = None
    facts: dict[str, Any] = {}


class Examination(msgspec.Struct, frozen=True, kw_only=True):
    """All findings, worst first."""

    database: str
    findings: Sequence[Finding]

    @property
    def severity(self) -> Severity:
        """The worst severity of all findings."""
        return max((each.severity for each in self.findings), key=lambda each: each.rank)

    @property
    def exit_code(self) -> int:
        """0 if all is well, 1 with warnings, 2 if something is critical."""
        return max(0, self.severity.rank - 1)


def naming_app(examination: Examination, app: str) -> Examination:
    """Fill in MODULE:NAME, so that commands can be pasted as they are."""

    def fill_in(text: str | None) -> str | None:
        return text and text.replace(APP_PLACEHOLDER, app)

    findings = [
        msgspec.structs.replace(each, advice=fill_in(each.advice), command=fill_in(each.command))
        for each in examination.findings
    ]
    return msgspec.structs.replace(examination, findings=findings)


def finding(
    severity: Severity,
    code: Check,
    sentence: str,
    /,
    advice: str | None = None,
    command: str | None = None,
    **facts: Any,
) -> Finding:
    return Finding(
        code=code, severity=severity, sentence=sentence, advice=advice, command=command, facts=facts
    )


fine = partial(finding, Severity.OK)
info = partial(finding, Severity.INFO)
warning = partial(finding, Severity.WARNING)
critical = partial(finding, Severity.CRITICAL)


def worst_first(findings: Sequence[Finding]) -> list[Finding]:
    order = list(Check)
    return sorted(findings, key=lambda each: (-each.severity.rank, order.index(each.code)))
