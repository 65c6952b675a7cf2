"""Measured figures: one per line, and ways to summarize them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True)
class Figure:
    """One number. `x` is what the case was varied by: processes, bytes, finished jobs."""

    case: str
    subject: str
    value: float
    unit: str
    x: float = 0.0
    variant: str = "best"
    others: float = 0.0  # the share of the machine that other processes used
    turn: int = 0  # subjects take turns; the raw loop has those before and after each


@dataclass(slots=True)
class Recording:
    """All that one run found out, as it is written to disk."""

    figures: list[Figure] = field(default_factory=list)
    surroundings: dict[str, str] = field(default_factory=dict)
    settings: dict[str, dict[str, str]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def median(self, subject: str, case: str, x: float = 0.0, variant: str = "best") -> float:
        """Raises KeyError if it was not measured."""
        found = self.values(subject, case, x, variant)
        if not found:
            raise KeyError(f"{case} of {subject}")
        return median(found)

    def values(self, subject: str, case: str, x: float = 0.0, variant: str = "best") -> list[float]:
        wanted = (subject, case, x, variant)
        return [
            each.value
            for each in self.figures
            if (each.subject, each.case, each.x, each.variant) == wanted
        ]

    def xs(self, subject: str, case: str) -> list[float]:
        """What the case was varied by, in order."""
        return sorted(
            {each.x for each in self.figures if (each.subject, each.case) == (subject, case)}
        )

    def beside(self, subject: str, raw: str, case: str, x: float, variant: str = "best") -> float:
        """The raw loop in the turns before and after the subject's; else over the whole run."""
        turns = {
            each.turn
            for each in self.figures
            if (each.subject, each.case, each.variant) == (subject, case, variant)
        }
        near = {turn + step for turn in turns for step in (-1, 0, 1)}
        found = [
            each.value
            for each in self.figures
            if (each.subject, each.case, each.x) == (raw, case, x) and each.turn in near
        ]
        return median(found) if found else self.median(raw, case, x)


class Recorder:
    """Writes every figure at once, so that an interrupted run keeps what it found."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("", encoding="utf-8")

    def figure(self, figure: Figure) -> None:
        self._write("figure", asdict(figure))

    def surroundings(self, found: Mapping[str, str]) -> None:
        self._write("surroundings", found)

    def settings(self, subject: str, found: Mapping[str, Any]) -> None:
        self._write("settings", {"subject": subject, **found})

    def missing(self, subject: str, reason: str) -> None:
        self._write("missing", {"subject": subject, "reason": reason})

    def _write(self, kind: str, content: Mapping[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, **content}) + "\n")


def read(lines: Iterable[str]) -> Recording:
    recording = Recording()
    for line in lines:
        content = json.loads(line)
        match content.pop("kind"):
            case "figure":
                recording.figures.append(Figure(**content))
            case "surroundings":
                recording.surroundings.update(content)
            case "settings":
                recording.settings[content.pop("subject")] = content
            case "missing":
                recording.missing[content["subject"]] = content["reason"]
    return recording
