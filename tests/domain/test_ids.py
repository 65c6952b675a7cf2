"""Ids are UUIDv7: unique, and rising within a process whatever its clock does."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from random import Random
from uuid import RFC_4122, UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.domain.ids import IdMaker

NOW = 1_700_000_000_000
MILLISECONDS = st.integers(0, 2**47)


def milliseconds_of(made: UUID) -> int:
    return made.int >> 80


class Highest(Random):
    """Randomness that always gives the largest number."""

    def getrandbits(self, k: int) -> int:
        return (1 << k) - 1


class NearlyUsedUp(Highest):
    """Whose first number leaves one step in the millisecond."""

    def __init__(self) -> None:
        super().__init__()
        self._first = True

    def getrandbits(self, k: int) -> int:
        first, self._first = self._first, False
        return (1 << 74) - 2 if first else super().getrandbits(k)


class Interruptible(Random):
    """Randomness in Python code, during which threads can take turns."""

    def getrandbits(self, k: int) -> int:
        return super().getrandbits(k)


@pytest.fixture
def busy_threads() -> Iterator[None]:
    usual_seconds = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual_seconds)


@settings(deadline=None)
@given(st.lists(MILLISECONDS, min_size=1, max_size=50), st.integers())
def test_ids_rise_even_when_the_clock_steps_back(clock: list[int], seed: int) -> None:
    maker = IdMaker(Random(seed))
    made = [maker.make(now) for now in clock]
    assert made == sorted(made)
    assert len(set(made)) == len(made)


@given(MILLISECONDS)
def test_an_id_is_like_any_other_uuid(now: int) -> None:
    made = IdMaker(Random(0)).make(now)
    same = UUID(int=made.int)
    assert (made, hash(made), repr(made), made.is_safe) == (
        same,
        hash(same),
        repr(same),
        same.is_safe,
    )
    assert pickle.loads(pickle.dumps(made)) == copy.deepcopy(made) == same


@settings(deadline=None)
@given(MILLISECONDS, st.integers())
def test_ids_are_uuids_of_version_7_with_their_time(now: int, seed: int) -> None:
    maker = IdMaker(Random(seed))
    first, second = maker.make(now), maker.make(now)
    for made in (first, second):
        assert made.version == 7
        assert made.variant == RFC_4122
    assert milliseconds_of(first) == now


def test_many_ids_of_one_millisecond_keep_their_time() -> None:
    maker = IdMaker(Random(1))
    made = [maker.make(NOW) for _ in range(10_000)]
    assert len(set(made)) == 10_000
    assert made == sorted(made)
    assert milliseconds_of(made[-1]) == NOW


def test_a_counter_that_is_used_up_moves_on_to_the_next_millisecond() -> None:
    maker = IdMaker(NearlyUsedUp())
    made = [maker.make(NOW) for _ in range(4)]
    assert [milliseconds_of(each) - NOW for each in made] == [0, 1, 1, 1]
    assert made == sorted(set(made))
    assert all(each.version == 7 and each.variant == RFC_4122 for each in made)


@pytest.mark.usefixtures("busy_threads")
def test_ids_of_concurrent_threads_are_unique() -> None:
    maker = IdMaker(Interruptible(2))
    made: list[list[UUID]] = [[] for _ in range(8)]
    together = threading.Barrier(len(made))

    def work(mine: list[UUID]) -> None:
        together.wait()
        mine.extend(maker.make(NOW) for _ in range(2000))

    threads = [threading.Thread(target=work, args=(mine,)) for mine in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(mine == sorted(mine) for mine in made)
    assert len({each for mine in made for each in mine}) == 16_000


def test_ids_of_two_makers_differ() -> None:
    assert IdMaker(Random(3)).make(NOW) != IdMaker(Random(4)).make(NOW)


FORK = f"""
import os, random
from holdfast.domain.ids import IdMaker
maker = IdMaker(random.Random())
maker.make({NOW})
for _ in range(2):
    if os.fork() == 0:
        os.write(1, (str(maker.make({NOW + 1})) + "\\n").encode())
        os._exit(0)
    os.wait()
print(maker.make({NOW + 1}))
"""


def test_forked_processes_make_different_ids() -> None:
    output = subprocess.run(
        [sys.executable, "-c", FORK],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert len(set(output.split())) == 3


def test_the_ids_of_a_tenant_do_not_tell_how_many_others_were_made() -> None:
    maker = IdMaker(Random(1))
    first = maker.make(NOW, "acme")
    maker.make_many(NOW, 1000, "globex")
    maker.make_many(NOW, 1000)
    second = maker.make(NOW, "acme")
    assert 0 < second.int - first.int <= 2**32
