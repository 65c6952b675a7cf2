"""How the end of a search can be completed: with a key, or with a value of its key. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple

from holdfast.domain.limits import COMPLETIONS_MAX
from holdfast.domain.search import KEYS, Term, quoted, terms
from holdfast.domain.states import State

AGES: Final = ("15min", "1h", "2h", "24h", "7d")

# The values of these keys are the same everywhere. Those of others are `known` to the caller.
_ALWAYS: Final[Mapping[str, Iterable[str]]] = {
    "state": tuple(State),
    "since": AGES,
    "until": AGES,
}


class Completion(NamedTuple):
    """`label` is what would be added, `text` the whole search with it. A key is not `whole`: it
    waits for its value."""

    text: str
    label: str
    about: str = ""
    whole: bool = True


def complete(text: str, known: Mapping[str, Iterable[str]]) -> list[Completion]:
    """Complete the last word of a search, or begin another one after a space."""
    values = {**known, **_ALWAYS}
    last = next(reversed([*terms(text)]), None)
    if last is None or last.end < len(text):
        found = _keys(text, "", {*_used(text)})
    elif last.whole and text.startswith('"', last.value_start):
        return []  # a value in quotes is complete
    elif last.key is None:
        found = _either(text[: last.start], last.value, values)
    else:
        found = _values(text, last, values.get(last.key, ()))
    return [*islice(found, COMPLETIONS_MAX)]


def _used(text: str) -> Iterator[str]:
    return (term.key for term in terms(text) if term.key is not None)


def _keys(before: str, typed: str, used: set[str]) -> Iterator[Completion]:
    for name in _ranked(typed, [*KEYS]):
        if name not in used:
            yield Completion(f"{before}{name}:", f"{name}:", KEYS[name].about, whole=False)


def _either(before: str, typed: str, values: Mapping[str, Iterable[str]]) -> Iterator[Completion]:
    """A word alone may become a key, or the value of one."""
    used = {*_used(before)}
    yield from _keys(before, typed, used)
    for name in KEYS:
        for value in _ranked(typed, values.get(name, ())) if name not in used else ():
            label = f"{name}:{quoted(value)}"
            yield Completion(f"{before}{label}", label, KEYS[name].about)


def _values(text: str, term: Term, values: Iterable[str]) -> Iterator[Completion]:
    before, typed = text[: term.value_start], term.value
    if term.key == "state":  # may be a list
        listed, comma, typed = typed.rpartition(",")
        before += listed + comma
        values = [value for value in values if value not in listed.split(",")]
    for value in _ranked(typed, values):
        yield Completion(f"{before}{quoted(value)}", f"{term.key}:{quoted(value)}")


def _ranked(typed: str, values: Iterable[str]) -> list[str]:
    """Those that begin with what was typed, then those that contain it."""
    wanted = typed.casefold()
    found = [(value.casefold().find(wanted), value) for value in dict.fromkeys(values)]
    starting = [value for place, value in found if place == 0]
    return starting + [value for place, value in found if place > 0]
