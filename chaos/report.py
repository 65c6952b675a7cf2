"""The outcome of a run, as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from chaos.recovery import BOUND_SECONDS, Recovery
from chaos.run import Outcome

SHOWN_MAX = 20


def report(outcomes: Sequence[Outcome], seed: int, seconds: float) -> str:
    return "\n".join(_lines(outcomes, seed, seconds))


def _lines(outcomes: Sequence[Outcome], seed: int, seconds: float) -> Iterator[str]:
    yield f"seed {seed}, {seconds:g} s of faults\n"
    yield "| store | jobs | acknowledged | starts | again | overlapping | payments | refused |"
    yield "|---|---|---|---|---|---|---|---|"
    for each in outcomes:
        counts = (
            each.jobs,
            each.acknowledged,
            each.starts,
            each.again,
            each.overlapping,
            each.payments,
            each.refused,
        )
        yield f"| {each.store} | " + " | ".join(f"{count:,}" for count in counts) + " |"
    yield "\n| store | faults | drained in | lost | doubled | stuck | wrong |"
    yield "|---|---|---|---|---|---|---|"
    for each in outcomes:
        kinds = Counter(finding.kind for finding in each.findings)
        found = " | ".join(str(kinds[kind]) for kind in ("lost", "doubled", "stuck", "wrong"))
        drained = f"{each.drain_seconds:.1f} s"
        yield f"| {each.store} | {len(each.faults)} | {drained} | {found} |"
    yield "\nSeconds until work resumed. A dead worker's job starts again"
    yield f"within {BOUND_SECONDS:g} s, the lease and 6 s:\n"
    yield "| store | fault | times | p50 | max |"
    yield "|---|---|---|---|---|"
    for each in outcomes:
        for recovery in each.recoveries:
            yield f"| {each.store} | {_row(recovery)} |"
    for each in outcomes:
        ends = ", ".join(f"{code}: {count}" for code, count in sorted(each.ends.items()))
        yield f"\n{each.store}: exit codes of workers: {ends or 'none'}"
    yield from _findings(outcomes)


def _row(recovery: Recovery) -> str:
    shown = ["-" if each is None else f"{each:.1f}" for each in (recovery.p50, recovery.max)]
    return " | ".join([recovery.kind, str(recovery.times), *shown])


def _findings(outcomes: Sequence[Outcome]) -> Iterator[str]:
    for each in outcomes:
        for finding in each.findings[:SHOWN_MAX]:
            yield f"{each.store}: promise {finding.promise}, {finding.kind}: {finding.text}"
        if (left := len(each.findings) - SHOWN_MAX) > 0:
            yield f"{each.store}: and {left} more"
    yield "every promise was kept" if not any(each.findings for each in outcomes) else "BROKEN"
