"""What a process counts for its next sample: bounded, and lost by no failure."""

from __future__ import annotations

from holdfast import State
from holdfast.domain.limits import SAMPLED_QUEUES_MAX, SAMPLED_TIMES_MAX
from holdfast.observability.throughput import Throughput
from tests.support.jobs import claimed


def test_attempts_are_counted_by_queue_and_for_all() -> None:
    throughput = Throughput()
    for queue, outcome in (
        ("a", State.SUCCEEDED),
        ("a", "retried"),
        ("b", State.DEAD),
        ("b", State.FAILED),
        ("b", State.CANCELED),
        ("b", "released"),
        ("b", "snoozed"),
    ):
        throughput.settled(queue, outcome, None if outcome is State.CANCELED else 2.0)
    taken = {each.queue: each for each in throughput.take()}
    assert taken.keys() == {"", "a", "b"}
    every = taken[""]
    assert (every.succeeded, every.retried, every.failed, every.canceled) == (1, 1, 2, 1)
    assert (every.timed, every.p50_seconds, every.p95_seconds) == (4, 2.0, 2.0)
    assert (taken["a"].succeeded, taken["a"].failed) == (1, 0)
    assert throughput.take() == []


def test_percentiles_are_those_of_the_newest_attempts() -> None:
    throughput = Throughput()
    for number in range(5 * SAMPLED_TIMES_MAX):
        throughput.settled("a", "succeeded", float(number))
    (_, found) = throughput.take()
    assert found.timed == 5 * SAMPLED_TIMES_MAX
    assert found.p50_seconds >= 4 * SAMPLED_TIMES_MAX


def test_queues_beyond_the_limit_are_counted_for_all_only() -> None:
    throughput = Throughput()
    for number in range(3 * SAMPLED_QUEUES_MAX):
        throughput.settled(f"q{number}", "succeeded", None)
    taken = throughput.take()
    assert len(taken) == SAMPLED_QUEUES_MAX + 1
    assert {each.queue: each.succeeded for each in taken}[""] == 3 * SAMPLED_QUEUES_MAX


def test_what_is_given_back_is_taken_again_with_what_follows() -> None:
    throughput = Throughput()
    throughput.settled("a", "succeeded", 1.0)
    throughput.give_back(throughput.take())
    throughput.settled("a", "succeeded", 3.0)
    throughput.settled("b", "succeeded", 3.0)
    taken = {each.queue: each for each in throughput.take()}
    assert (taken[""].succeeded, taken["a"].succeeded, taken["b"].succeeded) == (3, 2, 1)
    assert (taken["a"].p50_seconds, taken["a"].p95_seconds) == (2.0, 3.0)


def test_waits_are_counted_by_queue_and_for_all_and_given_back() -> None:
    throughput = Throughput()
    jobs = [("a", 0.0005), ("a", 0.0005), ("b", 0.5), ("b", None)]
    throughput.claimed([claimed(queue=queue, waited_seconds=seconds) for queue, seconds in jobs])
    throughput.give_back(throughput.take())
    throughput.claimed([claimed(queue="b", waited_seconds=0.6)])
    taken = {each.queue: each.waits for each in throughput.take()}
    assert taken == {"": {1: 2, 631: 2}, "a": {1: 2}, "b": {631: 2}}
    assert throughput.take() == []
