"""Whether all is well, and what needs attention first: the findings of `doctor`, kept fresh in the
background while somebody looks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from logging import WARNING
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from holdfast.app import Holdfast
from holdfast.dashboard.limits import EXAMINED_SECONDS
from holdfast.domain.diagnosis.findings import Check, Examination, Finding, Severity
from holdfast.domain.scope import all_tenants
from holdfast.observability import logs

_PLACES: Final = {
    Check.WORKERS: ("Workers", "/ui/workers"),
    Check.VERSIONS: ("Workers", "/ui/workers"),
    Check.LEASES: ("Workers", "/ui/workers"),
    Check.SLOTS: ("Workers", "/ui/workers"),
    Check.MESSENGERS: ("Workers", "/ui/workers"),
    Check.QUEUES: ("Queues", "/ui/queues"),
    Check.PAUSED: ("Queues", "/ui/queues"),
    Check.CAPS: ("Queues", "/ui/queues"),
    Check.NAMES: ("Jobs", "/ui/jobs?q=state:queued"),
    Check.ARGUMENTS: ("Jobs", "/ui/jobs?q=state:queued"),
    Check.BREAKERS: ("Breakers", "/ui/breakers"),
    Check.FAILURES: ("Dead letters", "/ui/dead"),
}


class Concern(NamedTuple):
    """A finding, and the page where something can be done about it, if there is one."""

    finding: Finding
    label: str | None
    path: str | None


def concerns(examination: Examination) -> list[Concern]:
    """What needs attention, worst first."""
    bad = [each for each in examination.findings if each.severity.rank >= Severity.WARNING.rank]
    bad.sort(key=lambda each: -each.severity.rank)
    return [Concern(each, *place_of(each)) for each in bad]


def place_of(finding: Finding) -> tuple[str | None, str | None]:
    queue: Any = finding.facts.get("queue")
    if isinstance(queue, str) and finding.code in (Check.PAUSED, Check.CAPS, Check.QUEUES):
        return f"Queue {queue}", f"/ui/queues/{quote(queue, safe='')}"
    fingerprint: Any = finding.facts.get("fingerprint")
    if isinstance(fingerprint, str) and finding.code is Check.FAILURES:
        return "Error group", f"/ui/dead/{quote(fingerprint, safe='')}"
    return _PLACES.get(finding.code, (None, None))


class Examiner:
    """Examines the database again when somebody asks for a result that is not fresh. Nobody waits
    for it: the next look finds the result."""

    def __init__(self, hf: Holdfast, found: Callable[[], None]) -> None:
        self._hf = hf
        self._found = found
        self._latest: Examination | None = None
        self._fresh_until = float("-inf")
        self._task: asyncio.Task[None] | None = None

    def latest(self) -> Examination | None:
        """The last result; None until there is one."""
        is_busy = self._task is not None and not self._task.done()
        if not is_busy and self._hf._seam.monotonic() >= self._fresh_until:
            self._task = asyncio.create_task(self._examine())
        return self._latest

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """End an examination in progress at the end of the block."""
        try:
            yield
        finally:
            if self._task is not None:
                self._task.cancel()
                await asyncio.gather(self._task, return_exceptions=True)

    async def _examine(self) -> None:
        before = self._latest
        try:
            with all_tenants():
                self._latest = await self._hf.examine()
        except Exception as error:  # the page shows what was found before
            logs.event(WARNING, "examination_failed", str(error))
        self._fresh_until = self._hf._seam.monotonic() + EXAMINED_SECONDS
        if self._latest != before:
            self._found()
