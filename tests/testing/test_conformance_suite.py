"""The conformance suite says what a store lacks before any of its tests fails."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from holdfast import State, store_api
from holdfast.domain import limits
from holdfast.testing.conformance import Kind, Room, StoreConformance
from holdfast.testing.conformance.history import end_in_place
from tests.support.forks import ROOT


def core() -> dict[str, object]:
    return {name: value for name, value in vars(store_api.Store).items() if name[0] != "_"}


def left_out(store: type, kind: Kind | None = None) -> list[str]:
    class Suite(StoreConformance, store=store, kind=kind):
        __test__ = False

    (mark,) = vars(Suite)["test_left_out"].pytestmark
    return [what.partition(":")[0] for what in mark.args[1]]


def test_a_store_without_a_verb_of_the_core_is_refused_by_name() -> None:
    verbs = {name: verb for name, verb in core().items() if name not in ("awaited", "renew")}
    with pytest.raises(TypeError, match="Half lacks verbs of the core: renew, awaited"):
        left_out(type("Half", (), verbs))


def test_a_capability_that_a_store_has_in_part_names_the_verbs_that_it_lacks() -> None:
    some = {"pause": None, "is_paused": None, "resume": None}
    told = left_out(type("Pausing", (), {**core(), **some}))
    assert "QueueControl without cap" in told
    assert "Breakers" in told


def test_a_store_says_what_it_has_no_room_for() -> None:
    plain = type("Plain", (), core())
    assert Room.CONSTRAINTS not in left_out(plain)
    assert Room.CONSTRAINTS in left_out(plain, Kind(lacks=frozenset({Room.CONSTRAINTS})))


def test_the_author_of_a_store_can_import_all_that_its_protocol_names() -> None:
    text = (ROOT / "src/holdfast/stores/protocol.py").read_text(encoding="utf-8")
    imported = {
        alias.name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("holdfast")
        for alias in node.names
    }
    named = {name for name in vars(limits) if name.isupper() and re.search(rf"\b{name}\b", text)}
    assert sorted((imported | named) - {*store_api.__all__}) == []


async def test_the_harness_in_the_docs_fits_a_store_with_history(tmp_path: Path) -> None:
    page = (ROOT / "docs/internals/stores.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    namespace: dict[str, Any] = {"__name__": "stores"}
    exec(example, namespace)
    harness = namespace["MyHarness"](tmp_path / "jobs")
    store = await harness.open_store()
    await end_in_place(store, harness, State.SUCCEEDED)
    assert await store.tidy(10) == 1
    await store.close()
