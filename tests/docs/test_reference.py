"""The reference pages name what the code has: events, fields, errors, codes, delays."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

import holdfast
from holdfast import Retry, store_api
from holdfast.domain import errors
from holdfast.observability import logs
from holdfast.worker.processes import warden
from tests.support.forks import ROOT
from tests.support.pages import assert_documented, assert_listed

UNLISTED = ("exception", "traceback")  # arguments of `logs.event` that are no fields
SOURCE = ROOT / "src" / "holdfast"
EVENTS = (ROOT / "docs/reference/events.md").read_text(encoding="utf-8")
ERRORS = (ROOT / "docs/reference/errors.md").read_text(encoding="utf-8")
RETRIES = (ROOT / "docs/guides/errors.md").read_text(encoding="utf-8")


class Call(NamedTuple):
    """A call of `logs.event`: a level or name that is chosen as it runs stands for several."""

    levels: set[str]
    names: set[str]
    fields: list[str]


def texts(*suffixes: str) -> Iterator[str]:
    """The engine's files, without those for tests."""
    for path in sorted(SOURCE.rglob("*")):
        if path.suffix in suffixes and not path.is_relative_to(SOURCE / "testing"):
            yield path.read_text(encoding="utf-8")


def nodes() -> Iterator[ast.AST]:
    for text in texts(".py"):
        yield from ast.walk(ast.parse(text))


def keyword_values(name: str) -> Iterator[ast.expr]:
    """What is given for a keyword of this name, anywhere."""
    for node in nodes():
        if isinstance(node, ast.keyword) and node.arg == name:
            yield node.value


def strings(node: ast.expr) -> set[str]:
    """The texts that an expression can have: a literal, or a choice between literals."""
    if isinstance(node, ast.IfExp):
        return strings(node.body) | strings(node.orelse)
    assert isinstance(node, ast.Constant), f"line {node.lineno}: no event can be read from the code"
    assert isinstance(node.value, str)
    return {node.value}


def calls() -> Iterator[Call]:
    for node in nodes():
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "logs.event":
            level, name = node.args[:2]
            keywords = [keyword.arg or "" for keyword in node.keywords]
            word = ast.unparse(level).lower()
            levels = {"info", "warning"} if word == "level" else {word}
            yield Call(levels, strings(name), [each for each in keywords if each not in UNLISTED])


def emitted() -> dict[str, set[str]]:
    """The fields of each event, as the calls give them."""
    found: dict[str, set[str]] = {}
    for call in calls():
        for name in call.names:
            found.setdefault(name, set()).update(call.fields)
    # The warden imports nothing of ours, so it formats its own line.
    return {**found, warden.EVENT: {"worker_id", "process_id"}}


def sections(page: str) -> dict[str, str]:
    """The text below each heading that is a name in backticks."""
    parts = re.split(r"^#+ (.+)$", page, flags=re.MULTILINE)[1:]
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return {title.strip("`"): text for title, text in pairs if title.startswith("`")}


def test_every_event_has_a_heading_with_its_fields() -> None:
    documented = {
        name: set(re.findall(r"`(\w+)`", text.partition("Fields:")[2]))
        for name, text in sections(EVENTS).items()
    }
    assert_documented("docs/reference/events.md", documented, emitted())


def test_every_event_is_documented_with_its_levels() -> None:
    documented = sections(EVENTS)
    missing = [
        f"{name}: {level}"
        for call in calls()
        for name in call.names
        for level in call.levels
        if call.names == {name} and not re.search(rf"\b[Ll]evel {level}\b", documented[name])
    ]
    assert missing == []


def test_every_field_of_an_event_is_explained() -> None:
    table = EVENTS.partition("## Fields")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert_listed("docs/reference/events.md", rows, list(logs.ALLOWED))


def test_every_error_has_a_heading() -> None:
    public = [
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception) and not name.startswith("_")
    ]
    assert_listed("docs/reference/errors.md", sorted(sections(ERRORS)), sorted(public))


def test_the_tree_of_errors_is_the_one_in_the_code() -> None:
    drawn = re.findall(r"^([│├└─ ]*)(\w+)$", ERRORS.split("```")[1], re.MULTILINE)
    path: list[str] = []
    for indent, name in drawn:
        del path[len(indent) // 4 :]
        if path:
            assert vars(errors)[name].__bases__[0].__name__ == path[-1], name
        path.append(name)
    assert sorted(name for _, name in drawn) == sorted(sections(ERRORS))


def test_every_error_is_exported() -> None:
    assert set(sections(ERRORS)) <= set(holdfast.__all__)


def test_every_error_code_of_the_engine_is_listed() -> None:
    table = set(re.findall(r"^\| `([A-Z_]+)` \|", ERRORS, re.MULTILINE))
    given = {
        value.value
        for value in keyword_values("error_code")
        if isinstance(value, ast.Constant) and value.value is not None
    }
    quoted = set(re.findall(r"""["']([A-Z_]+)["']""", "\n".join(texts(".py", ".sql"))))
    assert given <= table
    assert table <= quoted


def test_the_verbs_of_a_store_are_those_of_its_protocols() -> None:
    page = "docs/internals/stores.md"
    text = (ROOT / page).read_text(encoding="utf-8")
    core = text.partition("Store`): ")[2].partition("\n\n")[0]
    # A capability's name is a class's; the modules of a store are listed in another table.
    rows = re.findall(r"^\| `([A-Z]\w+)` \| ((?:`\w+`(?:, )?)+) \|", text, re.MULTILINE)
    listed = {name: set(re.findall(r"`(\w+)`", verbs)) for name, verbs in [("Store", core), *rows]}
    protocols = [store_api.Store, *store_api.CAPABILITIES]
    assert_documented(page, listed, {each.__name__: verbs_of(each) for each in protocols})


def verbs_of(protocol: type) -> set[str]:
    return {name for name, value in vars(protocol).items() if name[0] != "_" and callable(value)}


def test_the_table_of_delays_is_what_the_policies_say() -> None:
    rows = re.findall(r"^\| `((?:exponential|schedule)\(.*?\))` \|(.+)\|$", RETRIES, re.MULTILINE)
    assert len(rows) == 5
    for policy, cells in rows:
        *delays, attempts, _ = [cell.strip().replace(",", "") for cell in cells.split("|")]
        retry: Retry = eval(f"Retry.{policy}", {"Retry": Retry})
        assert retry.max_attempts == int(attempts)
        waits = [f"{retry.delay_seconds(failed, 0.5):g}" for failed in range(1, retry.max_attempts)]
        assert [delay for delay in delays if delay != "-"] == waits
