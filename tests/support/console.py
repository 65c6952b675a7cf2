"""Run the console sessions of a page, and compare what they print with what the page shows.

What differs in every run is found by its form: IDs, keys, leases, cursors and times. A name of this
kind on the page stands for the one of the run, in the commands that follow, too. `...` stands for
anything. Spaces and line breaks don't matter, so that JSON can be shown on several lines.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

BLOCK = re.compile(r"^```console\n(?P<session>.*?)^```$", re.MULTILINE | re.DOTALL)
STEP = re.compile(r"^\$ ((?:.*\\\n)*.*)\n?", re.MULTILINE)
FORMS = {
    "uuid": r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}",
    "key": r"hfk_[a-z2-7]{12}_[a-z2-7]{52}",
    "lease": r'(?<=")A[\w-]{55}(?=")',
}
NAME = "|".join(f"(?P<{form}>{pattern})" for form, pattern in FORMS.items())
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z"
SECONDS_MAX = 60
VARIABLES = ".variables"


class Step(NamedTuple):
    command: str
    shown: str


def steps(text: str) -> Iterator[Step]:
    """The commands of a page, each with the output that is shown below it."""
    for block in BLOCK.finditer(text):
        found = list(STEP.finditer(block["session"]))
        ends = [match.start() for match in found[1:]] + [len(block["session"])]
        for match, end in zip(found, ends, strict=True):
            yield Step(match[1].replace("\\\n", " "), block["session"][match.end() : end])


@dataclass
class Console:
    """A shell in a folder. Variables that a command sets are there for the next one."""

    folder: Path
    environment: Mapping[str, str]
    names: dict[str, str] = field(default_factory=dict)

    def run(self, step: Step) -> None:
        command = self.translated(step.command)
        script = f"set -a; . ./{VARIABLES}; {command}\ncode=$?; export -p >{VARIABLES}; exit $code"
        (self.folder / VARIABLES).touch()
        ran = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        assert ran.returncode == 0, f"{command}\n{ran.stdout}{ran.stderr}"
        self.compare(command, ran.stdout, step.shown)

    def compare(self, command: str, printed: str, shown: str) -> None:
        expected = self.translated(shown)
        found = re.fullmatch(_pattern(expected, set(self.names.values())), _squeezed(printed), re.S)
        assert found, f"$ {command}\nprinted:\n{printed}\nthe page shows:\n{shown}"
        new = [match[0] for match in re.finditer(NAME, _squeezed(expected))]
        new = [name for name in dict.fromkeys(new) if name not in self.names.values()]
        for name, actual in zip(new, found.groups(), strict=True):
            self.names[name] = actual
            if name.startswith("hfk_"):  # the public id of a key is a part of it
                self.names[name.split("_")[1]] = actual.split("_")[1]

    def variables(self, *names: str) -> dict[str, str]:
        """Those of these variables that a command has set."""
        path = self.folder / VARIABLES
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        found = (re.fullmatch(r'declare -x (\w+)="(.*)"', line) for line in lines)
        return {match[1]: match[2] for match in found if match and match[1] in names}

    def translated(self, text: str) -> str:
        """The text with the names of this run."""
        for name, actual in self.names.items():
            text = text.replace(name, actual)
        return text


def _squeezed(text: str) -> str:
    return re.sub(r"\s+", "", text)


def _pattern(expected: str, known: set[str]) -> str:
    """A pattern with one group for each name that is not known yet."""
    text = _squeezed(expected)
    parts: list[str] = []
    groups: list[str] = []
    at = 0
    for match in re.finditer(rf"{NAME}|(?P<time>{TIME})|(?P<anything>\.\.\.)", text):
        parts.append(re.escape(text[at : match.start()]))
        at = match.end()
        name, form = match[0], match.lastgroup
        if form == "anything":
            parts.append(".*?")
        elif form == "time":
            parts.append(TIME)
        elif name in known:
            parts.append(re.escape(name))
        elif name in groups:
            parts.append(rf"(?:\{groups.index(name) + 1})")
        else:
            groups.append(name)
            parts.append(f"({FORMS[form or '']})")
    return "".join([*parts, re.escape(text[at:])])
