"""Are many jobs failing?"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from holdfast.domain.diagnosis.findings import Check, Finding, fine, warning
from holdfast.domain.diagnosis.vitals import EndedLately, Failure
from holdfast.domain.fingerprint import fingerprint, shape
from holdfast.domain.limits import ENDED_LOOK_MAX
from holdfast.domain.states import DEAD_STATES

MANY: Final = 100  # failures that are reported however many jobs succeeded
SOME: Final = 10  # failures that are reported if they are a large share of the ended jobs
SHARE: Final = 0.1
FINDINGS_MAX: Final = 10


class _Queue(NamedTuple):
    """`ended` is None if more jobs ended than were counted."""

    name: str
    failed: int
    ended: int | None
    failures: list[Failure]


def judge_failures(seen: EndedLately) -> Iterator[Finding]:
    failing = sorted(_failing(seen), key=lambda each: -each.failed)
    if not failing:
        yield fine(Check.FAILURES, "no queue had many failures in the last hour")
    for queue in failing[:FINDINGS_MAX]:
        yield _finding(queue)
    if len(failing) > FINDINGS_MAX:
        yield warning(
            Check.FAILURES,
            f"{len(failing) - FINDINGS_MAX:,} more queues had many failures",
            advice="to see all errors",
            command="holdfast dead groups --app MODULE:NAME --since 1h",
        )


def _failing(seen: EndedLately) -> Iterator[_Queue]:
    is_all = sum(each.jobs for each in seen.ends) < ENDED_LOOK_MAX
    ended: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for each in seen.ends:
        if each.lately:
            ended[each.queue] += each.jobs
            failed[each.queue] += each.jobs if each.state in DEAD_STATES else 0
    failures: dict[str, list[Failure]] = {}
    for failure in seen.failures:
        failures.setdefault(failure.queue, []).append(failure)
    for queue in sorted(failures):
        # If more jobs ended than were counted, the newest are a sample of them.
        large_share = failed[queue] >= max(SOME, SHARE * ended[queue])
        most = max(failed[queue], len(failures[queue]))
        if most >= MANY or large_share:
            yield _Queue(queue, most, ended[queue] if is_all else None, failures[queue])


def _finding(queue: _Queue) -> Finding:
    by_group = {_group(each): each for each in queue.failures}
    (group, alike), *others = Counter(map(_group, queue.failures)).most_common(2)
    example = by_group[group]
    of, ended = ("", "") if queue.ended is None else (f" of {queue.ended:,}", "that ended ")
    most = f"{alike:,} of them" if others else "all of them"
    where = f"--queue {shlex.quote(queue.name)}"
    return warning(
        Check.FAILURES,
        f"{queue.failed:,}{of} jobs of queue {queue.name} {ended}in the last hour failed or died,"
        f" {most} {example.name} with {_error(example)}",
        advice="fix the cause, then requeue them with holdfast dead requeue --app MODULE:NAME --all"
        f" {where} --fingerprint {group}; to see all errors",
        command=f"holdfast dead groups --app MODULE:NAME --since 1h {where}",
        queue=queue.name,
        failed=queue.failed,
        ended=queue.ended,
        name=example.name,
        error_code=example.error_code,
        fingerprint=group,
        alike=alike,
    )


def _error(failure: Failure) -> str:
    code, text = failure.error_code or "no error code", shape(failure.error_text)
    return text if text.startswith(code) else f"{code}: {text}".removesuffix(": ")


def _group(failure: Failure) -> str:
    return fingerprint(failure.name, failure.error_code, failure.error_text)
