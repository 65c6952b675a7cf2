"""How long what has ended is kept, by queue and state."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import ConfigurationError, State
from holdfast.domain.retention import ANY, Retention, Rule, parse_rules
from holdfast.domain.states import ENDED

DAY = 86400.0


def test_the_rule_that_says_most_wins_whatever_the_order() -> None:
    rules = parse_rules("*:dead=90d, images:*=1d, images:dead=2h")
    retention = Retention(7 * DAY, rules)
    kept = retention.kept_seconds_of
    assert kept("images", State.DEAD) == 7200
    assert kept("images", State.SUCCEEDED) == DAY
    assert kept("mail", State.DEAD) == 90 * DAY
    assert kept("mail", State.SUCCEEDED) == 7 * DAY
    assert retention.longest_seconds == 90 * DAY


@pytest.mark.parametrize(
    ("age", "seconds"), [("90", 90), ("90s", 90), ("2m", 120), ("1.5h", 5400), ("7d", 7 * DAY)]
)
def test_an_age_has_a_unit(age: str, seconds: float) -> None:
    assert parse_rules(f"a:dead={age}") == (Rule("a", "dead", seconds),)


def test_a_queue_may_have_any_name() -> None:
    assert parse_rules("a=b:c:dead=1d") == (Rule("a=b:c", "dead", DAY),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("images", "is not a rule like"),
        ("images=1d", "is not a rule like"),
        (":dead=1d", "is not a rule like"),
        ("images:queued=1d", "canceled, dead, failed, succeeded"),
        ("images:dead=soon", "s, m, h or d"),
        ("images:dead=-1d", "s, m, h or d"),
        ("images:dead=4000d", "longer than ten years"),
        ("a:dead=1d,a:dead=2d", "the same queue and state"),
        (",".join(f"q{number}:*=1d" for number in range(101)), "101 history rules"),
    ],
)
def test_a_rule_that_can_not_be_right_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        parse_rules(text)


targets = st.tuples(
    st.sampled_from(["a", "b", ANY]), st.sampled_from([ANY, *(str(end) for end in ENDED)])
)


@given(st.dictionaries(targets, st.integers(1, 1000), max_size=9))
def test_every_ended_job_has_one_time(ages: dict[tuple[str, str], int]) -> None:
    text = ",".join(f"{queue}:{state}={age}" for (queue, state), age in ages.items())
    retention = Retention(5000, parse_rules(text))
    for queue in ("a", "b", "c"):
        for state in ENDED:
            order = [(queue, str(state)), (queue, ANY), (ANY, str(state)), (ANY, ANY)]
            expected = next((ages[target] for target in order if target in ages), 5000)
            assert retention.kept_seconds_of(queue, state) == expected


def test_there_is_room_for_jobs_that_are_kept_for_their_keys() -> None:
    assert Retention(7 * DAY, (), 7 * DAY).possible_seconds() == [7 * DAY]
    assert Retention(3600, (), 2 * DAY).possible_seconds() == [0, 3600, DAY, 2 * DAY]
    rules = parse_rules("a:dead=1h")
    assert Retention(7 * DAY, rules, DAY).possible_seconds() == [0, 3600, DAY, 7 * DAY]
    assert len(Retention(60, (), 5000 * DAY).possible_seconds()) == 102
