"""The search grammar: what is written is read again; an error says where it is and what helps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Filter
from holdfast.domain.completion import complete
from holdfast.domain.limits import COMPLETIONS_MAX, SEARCH_CHARS_MAX
from holdfast.domain.search import (
    KEYS,
    BadSearch,
    Search,
    format_search,
    parse_search,
    quoted,
    terms,
    with_states,
)
from holdfast.domain.states import State
from holdfast.domain.times import EARLIEST, LATEST
from tests.support import properties  # noqa: F401

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
JOB_ID = UUID("01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e")
KNOWN = {
    "queue": ["default", "mail", "mail bulk"],
    "name": ["send_mail", "resize"],
    "error": ["TimeoutError", "TIMEOUT"],
}

STORABLE = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
TEXTS = st.one_of(
    st.text(STORABLE, max_size=12),
    st.text(st.sampled_from('ab:", \\\t\n\u2028\u202e{}'), max_size=8),
)
ZONES = st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone)
TIMES = st.datetimes(
    EARLIEST.replace(tzinfo=None) + timedelta(days=1),
    LATEST.replace(tzinfo=None) - timedelta(days=1),
    timezones=ZONES,
)
FILTERS = st.builds(
    Filter,
    states=st.lists(st.sampled_from(State), max_size=6).map(tuple),
    **{
        name: st.none() | TEXTS
        for name in (
            *("queue", "name", "tenant", "tag", "correlation_id"),
            *("error_code", "fingerprint"),
        )
    },
    parent_id=st.none() | st.uuids(),
    since=st.none() | TIMES,
    until=st.none() | TIMES,
)


@given(FILTERS)
def test_what_is_written_is_read_again(filter: Filter) -> None:
    assert parse_search(format_search(filter), NOW) == Search(filter)


@given(st.text() | st.lists(st.sampled_from([*KEYS, ":", '"', " ", "\\", "x", ","])).map("".join))
def test_every_text_is_read_or_refused_at_a_place(text: str) -> None:
    found = _read_or_refused(text)
    if isinstance(found, BadSearch):
        assert 0 <= found.start <= found.end <= len(text)
        assert str(found).startswith(f"character {found.start + 1}: ")
    else:
        assert parse_search(format_search(found.filter), NOW).filter == found.filter


def _read_or_refused(text: str) -> Search | BadSearch:
    try:
        return parse_search(text, NOW)
    except BadSearch as error:
        return error


@given(st.text())
def test_terms_cover_the_text_in_order(text: str) -> None:
    end = 0
    for term in terms(text):
        assert not text[end : term.start].strip()
        assert term.start <= term.value_start <= term.end
        end = term.end
    assert not text[end:].strip()


def test_the_example_of_the_guide() -> None:
    found = parse_search("state:dead queue:mail error:timeout since:2h", NOW)
    since = NOW - timedelta(hours=2)
    filter = Filter(states=(State.DEAD,), queue="mail", error_code="timeout", since=since)
    assert found == Search(filter)


@pytest.mark.parametrize(
    ("text", "filter"),
    [
        ("", Filter()),
        ("  \t ", Filter()),
        ("state:dead,failed", Filter(states=(State.DEAD, State.FAILED))),
        ("state:dead state:failed", Filter(states=(State.DEAD, State.FAILED))),
        ('name:"send mail"  queue:a:b', Filter(name="send mail", queue="a:b")),
        (r'tag:"say \"hi\" \u00e9"', Filter(tag='say "hi" é')),
        ("since:2026-11-16", Filter(since=datetime(2026, 11, 16, tzinfo=UTC))),
        ("until:2026-11-16T03:00+02:00", Filter(until=datetime(2026, 11, 16, 1, tzinfo=UTC))),
        ("since:90s", Filter(since=NOW - timedelta(seconds=90))),
        ("since:99999999d", Filter(since=EARLIEST)),
        (f"parent:{JOB_ID}", Filter(parent_id=JOB_ID)),
        (
            "correlation:order-17 fingerprint:5f1c tenant:acme",
            Filter(correlation_id="order-17", fingerprint="5f1c", tenant="acme"),
        ),
    ],
)
def test_searches_find_what_they_say(text: str, filter: Filter) -> None:
    assert parse_search(text, NOW) == Search(filter)


@pytest.mark.parametrize("text", [str(JOB_ID), f"id:{JOB_ID}", f" {JOB_ID.hex} "])
def test_an_id_finds_its_job(text: str) -> None:
    assert parse_search(text, NOW) == Search(Filter(), JOB_ID)


@pytest.mark.parametrize(
    ("text", "marked", "words"),
    [
        (
            "queue:mail stat:dead",
            "stat:",
            "unknown key 'stat'; did you mean 'state'? The keys are state,",
        ),
        ("code:x", "code:", "did you mean 'error'?"),
        ("Queue:x", "Queue:", "did you mean 'queue'?"),
        (":x", ":", "the keys are state, queue,"),
        ("state:ded", "ded", "unknown state 'ded'; did you mean 'dead'? The states are"),
        ("state:dead,", "dead,", "the states are queued, running,"),
        ("since:yesterday", "yesterday", "use an age such as 15min, 2h or 3d, or a date"),
        ("since:1999999-01-01", "1999999-01-01", "is not a time"),
        ("until:1805-01-01", "1805-01-01", "between the years 1970 and 2999"),
        ("id:17", "17", "is not a job ID; one looks like"),
        ("queue:", "queue:", "queue: needs a value: the queue"),
        ('queue:mail name:"send', '"send', 'needs a closing "'),
        (r'name:"\x"', r'"\x"', 'needs a closing "'),
        ("dead", "dead", "did you mean state:dead?"),
        ("resize", "resize", "name:resize or error:resize"),
        ("queue:a queue:b", "queue:b", "queue appears twice"),
        (f"queue:a {JOB_ID}", f"queue:a {JOB_ID}", "an ID finds one job"),
        ("name:\ud800", "\ud800", "which no job can have"),
    ],
)
def test_an_error_names_its_place_and_what_would_be_right(
    text: str, marked: str, words: str
) -> None:
    with pytest.raises(BadSearch) as caught:
        parse_search(text, NOW)
    error = caught.value
    assert text[error.start : error.end] == marked
    assert words in str(error)
    assert str(error).startswith(f"character {error.start + 1}: ")


def test_a_search_has_a_length_limit() -> None:
    with pytest.raises(BadSearch, match="the maximum is 2,000"):
        parse_search("x" * (SEARCH_CHARS_MAX + 1), NOW)


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("sta", ["state:"]),
        ("queue:mail sta", ["state:"]),
        ("state:", ["state:queued", "state:running", "state:succeeded", "state:failed"]),
        ("state:dead,f", ["state:failed"]),
        ("queue:ma", ["queue:mail", 'queue:"mail bulk"']),
        ("queue:AIL", ["queue:mail", 'queue:"mail bulk"']),
        ('queue:"mail b', ['queue:"mail bulk"']),
        ("error:out", ["error:TimeoutError", "error:TIMEOUT"]),
        ("since:2", ["since:2h", "since:24h"]),
        ("tag:x", []),
        ("unknown:x", []),
        ('queue:"mail"', []),
        ("resi", ["name:resize"]),
        ("dea", ["state:dead"]),
    ],
)
def test_suggestions_complete_what_was_typed(text: str, labels: list[str]) -> None:
    found = [each.label for each in complete(text, KNOWN)]
    assert found[: len(labels)] == labels
    assert bool(found) == bool(labels)


@pytest.mark.parametrize(
    ("text", "completed"),
    [
        ("queue:mail sta", "queue:mail state:"),
        ("state:dead,f", "state:dead,failed"),
        ('name:x queue:"mail b', 'name:x queue:"mail bulk"'),
        ("queue:mail ", "queue:mail state:"),
    ],
)
def test_a_suggestion_keeps_what_came_before(text: str, completed: str) -> None:
    assert complete(text, KNOWN)[0].text == completed


def test_a_key_that_is_there_is_not_suggested_again() -> None:
    assert "queue:" not in [each.label for each in complete("queue:mail ", KNOWN)]
    assert [each.label for each in complete("queue:mail que", KNOWN)] == ["state:queued"]


@given(st.text(), st.lists(st.text(STORABLE, min_size=1, max_size=8)))
def test_suggestions_are_few_and_each_value_is_one_term(text: str, names: list[str]) -> None:
    found = complete(text, {"queue": names, "name": names})
    assert len(found) <= COMPLETIONS_MAX
    for each in found:
        last = [*terms(each.text)][-1]
        assert last.whole
        assert last.end == len(each.text)
        assert each.whole == (last.value_start < last.end)
        assert each.label in each.text or last.key == "state"


@given(st.text(STORABLE))
def test_a_quoted_value_is_one_term(value: str) -> None:
    assert [(term.key, term.value) for term in terms(f"tag:{quoted(value)}")] == [("tag", value)]


def test_other_states_leave_the_rest_of_a_search_as_it_was_written() -> None:
    text = 'queue:mail state:dead,failed since:2h  state:canceled name:"send mail"'
    assert with_states(text, ()) == 'queue:mail since:2h name:"send mail"'
    changed = with_states(text, (State.QUEUED, State.RUNNING))
    assert changed == 'state:queued,running queue:mail since:2h name:"send mail"'
