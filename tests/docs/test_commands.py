"""Every command has an example, and a heading in the reference that names its options."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest

from holdfast.cli.main import holdfast
from tests.support.forks import ROOT
from tests.support.pages import assert_listed

PAGE = "docs/reference/cli.md"
SHARED = {"--app", "--database", "--debug", "--help"}


def walk(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from walk(child, f"{path} {name}")
    else:
        yield path, command


COMMANDS = dict(walk(holdfast, "holdfast"))


@pytest.mark.parametrize("path", COMMANDS)
def test_every_help_has_an_example(path: str) -> None:
    command = COMMANDS[path]
    text = command.get_help(click.Context(command, info_name=path))
    example = re.search(rf"Examples?:\n +(\S+=\S+ )?{path}\b", text)
    assert example, "end its docstring with 'Example:' and a line that begins with the command"


def test_the_docs_have_a_heading_for_every_command_and_name_every_option() -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## `([\w -]+)`$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    assert_listed(PAGE, sorted(sections), sorted(COMMANDS))
    for path, command in COMMANDS.items():
        shown = [each for each in command.params if not getattr(each, "hidden", False)]
        options = {name for option in shown for name in option.opts if name[0] == "-"}
        written = set(re.findall(r"--[a-z][a-z-]*", sections[path]))
        assert options - SHARED <= written, f"{PAGE}: `{path}` lacks an option"
        assert written <= options | SHARED, f"{PAGE}: `{path}` has no such option"
