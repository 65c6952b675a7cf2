"""The report in Markdown: floors and goals, every subject, growth, drift, settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import median

from bench.figures import Recording
from bench.targets import RAW, TARGETS, Bound, Target

OTHERS_SHARE_MAX = 0.15
COLUMNS = (
    ("enqueue", 0.0, "enqueue, jobs/s"),
    ("bulk", 0.0, "bulk, jobs/s"),
    ("drain", 1.0, "drain, jobs/s"),
    ("drain", 2.0, "drain by 2, jobs/s"),
    ("pick-up p50", 0.0, "pick-up p50, ms"),
    ("pick-up p95", 0.0, "p95, ms"),
    ("pick-up p99", 0.0, "p99, ms"),
)
COSTS = (
    ("start-up", "start-up, s"),
    ("memory", "memory, MB"),
    ("worker CPU", "worker CPU, µs/job"),
    ("server CPU", "server CPU, µs/job"),
    ("WAL", "WAL, bytes/job"),
    ("commits", "commits/job"),
    ("dead tuples", "dead tuples/job"),
)
BASIC = {case for case, _, _ in COLUMNS} | {case for case, _ in COSTS}
NOT_MEASURED = "-"


def report(recording: Recording, pictures: Sequence[tuple[str, str]] = ()) -> str:
    """`pictures` are titles and addresses of plots."""
    parts = [
        _surroundings(recording),
        "## Floors and goals\n\n" + targets_table(recording),
        "## Every queue\n\nIn brackets: the ratio to the raw loop before and after it.\n\n"
        + subjects_table(recording),
        "## What a job costs\n\n" + costs_table(recording),
        "## Growth\n\n" + growth_table(recording),
        "## Drift\n\n" + drift_table(recording),
        "## Settings\n\n" + settings_table(recording),
    ]
    if recording.missing:
        parts.append("## Not measured\n\n" + "\n".join(_missing(recording)))
    if pictures:
        shown = "\n\n".join(f"![{title}]({address})" for title, address in pictures)
        parts.insert(2, f"## Pictures\n\n{shown}")
    return "\n\n".join(part for part in parts if part) + "\n"


def _surroundings(recording: Recording) -> str:
    lines = [f"- {name}: {value}" for name, value in recording.surroundings.items()]
    busy = [each for each in recording.figures if each.others > OTHERS_SHARE_MAX]
    if busy:
        lines.append(
            f"- **{len(busy)} of {len(recording.figures)} figures were taken while others used"
            f" more than {OTHERS_SHARE_MAX:.0%} of the machine (at most"
            f" {max(each.others for each in busy):.0%}): measure again before you believe them.**"
        )
    return "\n".join(lines)


def targets_table(recording: Recording) -> str:
    rows = [_target_row(target, recording) for target in TARGETS]
    heads = ("", "floor", "goal", "reached", "to the floor", "to the goal")
    return table(heads, rows)


def _target_row(target: Target, recording: Recording) -> list[str]:
    try:
        reached = target.reached.find(recording)
        title = target.title.format(x=target.reached.find_x(recording))
    except KeyError:
        bounds = [", ".join(map(_bound_text, each)) for each in (target.floors, target.goals)]
        title = target.title.replace("{x:,.0f}", "many")
        return [title, *bounds, "not measured", NOT_MEASURED, NOT_MEASURED]
    return [
        title,
        _bounds(target.floors, target, recording),
        _bounds(target.goals, target, recording),
        f"{number(reached)} {target.unit}",
        _distance(target.floors, target, reached, recording),
        _distance(target.goals, target, reached, recording),
    ]


def _bound_text(bound: Bound) -> str:
    return bound.text() or number(bound.times)


def _bounds(bounds: Iterable[Bound], target: Target, recording: Recording) -> str:
    texts = []
    for bound in bounds:
        try:
            value = number(bound.value(recording, target.reached))
        except KeyError:
            value = "not measured"
        texts.append(f"{value} ({bound.text()})" if bound.of else value)
    return ", ".join(texts)


def _distance(bounds: Sequence[Bound], target: Target, reached: float, recording: Recording) -> str:
    """The distance to the tightest bound, in percent; positive is better than required."""
    found = []
    for bound in bounds:
        try:
            value = bound.value(recording, target.reached)
        except KeyError:
            continue
        by = reached / value - 1 if target.more_is_better else 1 - reached / value
        found.append(by * 100)
    if not found:
        return NOT_MEASURED
    missing = " (of what was measured)" if len(found) < len(bounds) else ""
    return f"{min(found):+.0f} %{missing}"


def subjects_table(recording: Recording) -> str:
    rows = []
    for subject, variant in subjects(recording):
        raw = RAW.get(recording.settings.get(_key(subject, variant), {}).get("service", ""), "")
        cells = [_cell(recording, subject, variant, raw, case, x) for case, x, _ in COLUMNS]
        rows.append([_named(subject, variant), *cells])
    return table(("", *(head for _, _, head in COLUMNS)), rows)


def _cell(recording: Recording, subject: str, variant: str, raw: str, case: str, x: float) -> str:
    found = recording.values(subject, case, x, variant)
    if not found:
        return NOT_MEASURED
    value = median(found)
    if not raw or raw == subject or not recording.values(raw, case, x):
        return number(value)
    return f"{number(value)} ({value / recording.beside(subject, raw, case, x, variant):.2f})"


def costs_table(recording: Recording) -> str:
    rows = []
    for subject, variant in subjects(recording):
        found = [recording.values(subject, case, 0.0, variant) for case, _ in COSTS]
        cells = [number(median(each)) if each else NOT_MEASURED for each in found]
        rows.append([_named(subject, variant), *cells])
    return table(("", *(head for _, head in COSTS)), rows)


def growth_cases(recording: Recording) -> list[tuple[str, str]]:
    """The subjects and cases beyond the basic ones, in the order in which they were measured."""
    found = [(each.subject, each.case) for each in recording.figures if each.case not in BASIC]
    return list(dict.fromkeys(found))


def growth_table(recording: Recording) -> str:
    rows = []
    units = {(each.subject, each.case): each.unit for each in recording.figures}
    for subject, case in growth_cases(recording):
        first = None
        for x in recording.xs(subject, case):
            value = recording.median(subject, case, x)
            first = value if first is None else first
            ratio = f"{value / first:.2f}" if first else NOT_MEASURED
            unit = units[subject, case]
            rows.append([subject, case, f"{x:,.0f}", f"{number(value)} {unit}", ratio])
    return table(("", "case", "at", "found", "to the first"), rows) if rows else ""


def drift_table(recording: Recording) -> str:
    """The spread of the raw loops' figures over the run: smaller differences mean nothing."""
    rows = []
    for raw in RAW.values():
        for case, x, head in COLUMNS:
            found = recording.values(raw, case, x)
            if len(found) > 1:
                spread = (max(found) - min(found)) / median(found)
                rows.append(
                    [raw, head, str(len(found)), number(min(found)), number(max(found)),
                     f"{spread:.0%}"]
                )  # fmt: skip
    return table(("", "case", "times", "least", "most", "apart"), rows)


def settings_table(recording: Recording) -> str:
    rows = [
        [name, each.get("versions", ""), each.get("settings", ""), each.get("documented", "")]
        for name, each in recording.settings.items()
    ]
    return table(("", "versions", "settings", "documented in"), rows)


def subjects(recording: Recording) -> list[tuple[str, str]]:
    return list(dict.fromkeys((each.subject, each.variant) for each in recording.figures))


def _key(subject: str, variant: str) -> str:
    return f"{subject} ({variant})"


def _named(subject: str, variant: str) -> str:
    return subject if variant == "best" else _key(subject, variant)


def _missing(recording: Recording) -> Iterator[str]:
    for subject, reason in recording.missing.items():
        yield f"- {subject}: {reason.splitlines()[0]}"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
