"""Search texts for jobs, such as `state:dead queue:mail since:2h`: read and written. No I/O.

A search is a list of terms, `key:value`, and finds the jobs that match all of them. A value with
spaces is a JSON string: `name:"send mail"`. The ID of a job alone finds that job.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from holdfast.domain.errors import BadArguments
from holdfast.domain.job import Filter
from holdfast.domain.limits import SEARCH_CHARS_MAX
from holdfast.domain.spelling import did_you_mean
from holdfast.domain.states import State
from holdfast.domain.texts import check_text
from holdfast.domain.times import check_time, parse_moment

_SPACES: Final = re.compile(r"\s*")
_KEY: Final = re.compile(r'[^\s":]*')
_WORD: Final = re.compile(r"\S*")
_NEEDS_QUOTES: Final = re.compile(r'\s|^"|^$|[\x00-\x1f\x7f-\x9f]')
_JSON: Final = json.JSONDecoder(strict=False)  # a text field may contain a tab


class BadSearch(Exception):
    """The search has an error from the character `start` up to `end`, counted from 0."""

    def __init__(self, reason: str, start: int, end: int) -> None:
        super().__init__(reason)
        self.start = start
        self.end = end


class Search(NamedTuple):
    """What somebody is looking for: jobs that match a filter, or the job with an ID."""

    filter: Filter
    job_id: UUID | None = None


class Term(NamedTuple):
    """One `key:value` of a search. A word alone has no key. A value whose quotes are not closed is
    not `whole`."""

    key: str | None
    value: str
    start: int
    value_start: int
    end: int
    whole: bool = True


def _read_text(value: str, _now: datetime) -> str:
    check_text("the value", value)
    return value


def _read_states(value: str, _now: datetime) -> tuple[State, ...]:
    names = value.split(",")
    for name in names:
        if name not in set(State):
            hint = did_you_mean(name, map(str, State))
            raise BadArguments(f"unknown state {name!r}{hint}{_list('states', State, hint)}")
    return tuple(map(State, names))


def _read_time(value: str, now: datetime) -> datetime:
    time = parse_moment(value, now)
    if time is None:
        raise BadArguments(
            f"{value!r} is not a time; use an age such as 15min, 2h or 3d, or a date such as"
            " 2026-11-16 or 2026-11-16T03:00Z"
        )
    check_time("the time", time)
    return time


def _read_id(value: str, _now: datetime) -> UUID:
    try:
        return UUID(value)
    except ValueError:
        example = "01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e"
        raise BadArguments(f"{value!r} is not a job ID; one looks like {example}") from None


def _write_states(states: Sequence[State]) -> str:
    return ",".join(states)


def _write_time(time: datetime) -> str:
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")


class Key(NamedTuple):
    """A key of the grammar: which field of the filter it sets, and how its values are read and
    written. `about` explains it to someone who types a search."""

    field: str
    about: str
    read: Callable[[str, datetime], Any] = _read_text
    write: Callable[[Any], str] = str


KEYS: Final = {
    "state": Key("states", "one state, or several: dead,failed", _read_states, _write_states),
    "queue": Key("queue", "the queue"),
    "name": Key("name", "the job's name"),
    "error": Key("error_code", "the error code, exactly"),
    "since": Key("since", "ended since, or created: 2h, 2026-11-16", _read_time, _write_time),
    "until": Key("until", "ended before, or created: 2h, 2026-11-16", _read_time, _write_time),
    "tag": Key("tag", "a tag"),
    "tenant": Key("tenant", "the tenant"),
    "correlation": Key("correlation_id", "the correlation ID"),
    "parent": Key("parent_id", "the ID of the job that enqueued them", _read_id),
    "fingerprint": Key("fingerprint", "the fingerprint of an error group"),
    "id": Key("job_id", "the ID of one job", _read_id),
}
# What other tools, the API and the command line call the same.
_ALSO: Final = {
    "status": "state",
    "code": "error",
    "error_code": "error",
    "correlation_id": "correlation",
    "parent_id": "parent",
    "group": "fingerprint",
    "job": "name",
    "after": "since",
    "before": "until",
}


def parse_search(text: str, now: datetime) -> Search:
    """Read a search, or raise BadSearch. Ages such as 2h count back from `now`."""
    if len(text) > SEARCH_CHARS_MAX:
        reason = f"the search has {len(text):,} characters; the maximum is {SEARCH_CHARS_MAX:,}"
        raise bad(reason, SEARCH_CHARS_MAX, len(text))
    found: dict[str, Any] = {}
    for term in terms(text):
        field, value = _read(term, now)
        if field == "states":
            value = (*found.get(field, ()), *value)
        elif field in found:
            raise bad(f"{term.key} appears twice; a job has only one", term.start, term.end)
        found[field] = value
    job_id = found.pop("job_id", None)
    if job_id is not None and found:
        raise bad("an ID finds one job; leave out the rest", 0, len(text))
    return Search(Filter(**found), job_id)


def format_search(filter: Filter) -> str:
    """Write the search that finds what the filter finds."""
    values = msgspec.structs.asdict(filter)
    return " ".join(
        f"{name}:{quoted(key.write(values[key.field]))}"
        for name, key in KEYS.items()
        if values.get(key.field) not in (None, ())
    )


def with_states(text: str, states: Sequence[State]) -> str:
    """The same search for other states, or for all: the rest stays as it was written."""
    rest = [text[term.start : term.end] for term in terms(text) if term.key != "state"]
    wanted = [f"state:{_write_states(states)}"] if states else []
    return " ".join(wanted + rest)


def quoted(value: str) -> str:
    """The value as it stands in a search."""
    return json.dumps(value, ensure_ascii=False) if _NEEDS_QUOTES.search(value) else value


def terms(text: str) -> Iterator[Term]:
    """Split a search, which may be unfinished, at its spaces."""
    position = _end(_SPACES, text, 0)
    while position < len(text):
        term = _term_at(text, position)
        yield term
        position = _end(_SPACES, text, term.end)


def _term_at(text: str, start: int) -> Term:
    key_end = _end(_KEY, text, start)
    name, value_start = None, start
    if text.startswith(":", key_end):
        name, value_start = text[start:key_end], key_end + 1
    if not text.startswith('"', value_start):
        end = _end(_WORD, text, value_start)
        return Term(name, text[value_start:end], start, value_start, end)
    try:
        value, end = _JSON.raw_decode(text, value_start)
    except ValueError:
        return Term(name, text[value_start + 1 :], start, value_start, len(text), whole=False)
    return Term(name, value, start, value_start, end)


def _end(pattern: re.Pattern[str], text: str, start: int) -> int:
    match = pattern.match(text, start)
    return start if match is None else match.end()


def _read(term: Term, now: datetime) -> tuple[str, Any]:
    if not term.whole:
        raise bad('the text that starts here needs a closing "', term.value_start, term.end)
    if term.key is None:
        return "job_id", _read_word(term)
    key = KEYS.get(term.key)
    if key is None:
        raise bad(_unknown(term.key), term.start, term.value_start)
    if term.value_start == term.end:
        raise bad(f"{term.key}: needs a value: {key.about}", term.start, term.end)
    try:
        return key.field, key.read(term.value, now)
    except BadArguments as error:
        raise bad(str(error), term.value_start, term.end) from None


def _read_word(term: Term) -> UUID:
    try:
        return UUID(term.value)
    except ValueError:
        pass
    if term.value in set(State):
        hint = f"did you mean state:{term.value}?"
    else:
        hint = f"write for example name:{quoted(term.value)} or error:{quoted(term.value)}"
    raise bad(f"{term.value!r} has no key; {hint}", term.start, term.end)


def _unknown(name: str) -> str:
    meant = _ALSO.get(name.lower())
    if meant is None:
        meant = name.lower() if name.lower() in KEYS else None
    hint = f"; did you mean {meant!r}?" if meant else did_you_mean(name, KEYS)
    return f"unknown key {name!r}{hint}{_list('keys', KEYS, hint)}"


def _list(what: str, names: Iterable[str], hint: str) -> str:
    """The end of a sentence: what would be right, after a hint that ends with a question."""
    return f"{' The' if hint else '; the'} {what} are {', '.join(names)}"


def bad(reason: str, start: int, end: int) -> BadSearch:
    """The error of a part of a search, with its place."""
    return BadSearch(f"character {start + 1}: {reason}", start, end)
