"""How many messages a worker in broker-led mode asks for: the client returns none of them before
all have come, so asking for too many delays those that are there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.limits import MESSAGES_RECEIVED_MAX
from holdfast.wakeups.servicebus.convoy import Pace

seconds = st.floats(min_value=0, max_value=3600)
messages = st.integers(min_value=0, max_value=MESSAGES_RECEIVED_MAX)


def after(pace: Pace, *receives: tuple[float, int]) -> int:
    for took, count in receives:
        pace.took(took, count)
    return pace.count


def test_messages_that_come_now_and_then_are_received_one_by_one() -> None:
    pace = Pace()
    assert {after(pace, (0.025, 1)) for _ in range(200)} == {1}


def test_a_few_that_waited_together_do_not_make_the_next_ones_wait() -> None:
    assert after(Pace(), (0.5, 1), (0.0, 1), (0.0, 1), (0.0, 1)) == 1


def test_a_backlog_is_received_many_at_a_time() -> None:
    pace = Pace()
    counts = [after(pace, (0.0002 * pace.count, pace.count)) for _ in range(40)]
    assert counts == sorted(counts)
    assert counts[-1] > 40


def test_after_a_backlog_it_receives_one_by_one_again() -> None:
    pace = Pace()
    after(pace, *[(0.0, 100)] * 100)
    assert pace.count == MESSAGES_RECEIVED_MAX
    assert after(pace, *[(5.0, 0)] * 4, *[(0.025, 1)] * 4) == 1


@given(st.lists(st.tuples(seconds, messages), max_size=50))
def test_it_asks_for_at_least_one_and_at_most_what_one_answer_holds(
    receives: list[tuple[float, int]],
) -> None:
    assert 1 <= after(Pace(), *receives) <= MESSAGES_RECEIVED_MAX
