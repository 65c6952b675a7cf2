"""Measure this code and that of an earlier commit in turn, in one run.

The bench is this tree's for both; only the package `holdfast` is the earlier one's. Each case runs
before, after, before, after: a machine that is twice as fast in one minute as in the next treats
both alike.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench.environments import FOLDER, ROOT
from bench.figures import Figure, Recording, read
from bench.one import parsed
from bench.parts import tell
from bench.report import OTHERS_SHARE_MAX, number, table

CASES = (
    "holdfast-postgresql/drain",
    "holdfast-postgresql:default/drain",
    "holdfast-postgresql/latency",
    "holdfast-postgresql/enqueue",
    "holdfast-postgresql/memory",
    "holdfast-postgresql/start_of_python",
    "holdfast-sqlite/enqueue",
    "holdfast-sqlite/drain",
)
ROUNDS = 3


@dataclass(frozen=True)
class Key:
    subject: str
    variant: str
    case: str
    x: float
    unit: str


@dataclass
class Pair:
    """One row: the values of the earlier code and of this one."""

    before: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)
    others: float = 0.0


def compare(revision: str, cases: Sequence[str], *, quick: bool) -> str:
    cases = cases or CASES
    for case in cases:
        parsed(case)  # before an hour has passed
    earlier = source_of(revision)
    pairs: dict[Key, Pair] = {}
    for case in cases:
        for turn in range(ROUNDS):
            tell(f"{case}: {revision}, {turn + 1} of {ROUNDS}")
            before = _measured(case, earlier, quick=quick)
            tell(f"{case}: now, {turn + 1} of {ROUNDS}")
            add(pairs, before, _measured(case, ROOT / "src", quick=quick))
    tell("")
    return comparison(revision, pairs)


def source_of(revision: str) -> Path:
    """The folder `src` of a commit, unpacked once."""
    git = ["git", "-C", str(ROOT)]
    named = [*git, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"]
    found = subprocess.run(named, capture_output=True, text=True, check=False)
    if found.returncode:
        raise ValueError(f"no commit {revision!r} in this repository")
    commit = found.stdout.strip()
    folder = FOLDER / "against" / commit
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as made:
            archive = [*git, "archive", commit, "src"]
            packed = subprocess.run(archive, stdout=subprocess.PIPE, check=True).stdout
            subprocess.run(["tar", "-x", "-C", made], input=packed, check=True)
            Path(made, "src").rename(folder)
    return folder


def _measured(case: str, source: Path, *, quick: bool) -> Recording:
    """In a process of its own, which imports the `holdfast` of this source."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "figures.jsonl")
        options = ["--out", str(out), *(["--quick"] if quick else [])]
        subprocess.run(
            [sys.executable, "-m", "bench.one", case, *options],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(source)},
            check=True,
        )
        return read(out.read_text(encoding="utf-8").splitlines())


def add(pairs: dict[Key, Pair], before: Recording, after: Recording) -> None:
    for recording, chosen in ((before, "before"), (after, "after")):
        for each in recording.figures:
            pair = pairs.setdefault(_key(each), Pair())
            getattr(pair, chosen).append(each.value)
            pair.others = max(pair.others, each.others)


def _key(figure: Figure) -> Key:
    return Key(figure.subject, figure.variant, figure.case, figure.x, figure.unit)


def comparison(revision: str, pairs: dict[Key, Pair]) -> str:
    heads = ("", "case", "at", revision, "now", "now to then", "least to most", "others used")
    return table(heads, list(_rows(pairs)))


def _rows(pairs: dict[Key, Pair]) -> Iterator[list[str]]:
    for key, pair in pairs.items():
        if not pair.before or not pair.after:
            continue  # a case that only one of the two knows
        ratios = sorted(
            after / before for before, after in zip(pair.before, pair.after, strict=False) if before
        )
        yield [
            f"{key.subject} ({key.variant})",
            key.case,
            f"{key.x:,.0f}",
            f"{number(median(pair.before))} {key.unit}",
            f"{number(median(pair.after))} {key.unit}",
            f"{median(ratios):.2f}" if ratios else "-",
            f"{ratios[0]:.2f} to {ratios[-1]:.2f}" if ratios else "-",
            f"{pair.others:.0%}" if pair.others > OTHERS_SHARE_MAX else "",
        ]
