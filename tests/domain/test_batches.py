"""How much goes into one statement."""

from __future__ import annotations

from itertools import chain, pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.batches import Portion, batches
from holdfast.domain.limits import CLAIM_BATCH_MAX, CLAIM_BYTES_AIM, PAYLOAD_BYTES_MAX
from tests.support import properties  # noqa: F401
from tests.support.jobs import claimed

MIB = 1024 * 1024


@given(
    st.lists(st.integers(0, 50)),
    st.integers(1, 10),
    st.integers(1, 60),
)
def test_batches_hold_everything_in_order_and_no_more_than_they_may(
    sizes: list[int], rows_max: int, bytes_max: int
) -> None:
    cut = list(batches(sizes, rows_max, bytes_max, int))
    assert list(chain.from_iterable(cut)) == sizes
    for batch in cut:
        assert 1 <= len(batch) <= rows_max
        assert sum(batch) <= bytes_max or len(batch) == 1
    for batch, following in pairwise(cut):
        assert len(batch) == rows_max or sum(batch) + following[0] > bytes_max


@pytest.mark.parametrize(
    ("payload_bytes_max", "rows"),
    [(1000, CLAIM_BATCH_MAX), (PAYLOAD_BYTES_MAX, CLAIM_BATCH_MAX), (10 * MIB, 25), (2**40, 1)],
)
def test_a_claim_asks_for_what_can_be_held_if_all_jobs_are_as_large_as_they_may(
    payload_bytes_max: int, rows: int
) -> None:
    assert Portion(payload_bytes_max).rows == rows


def test_claims_get_smaller_while_much_comes_and_grow_back() -> None:
    portion = Portion(PAYLOAD_BYTES_MAX)
    large = msgspec.structs.replace(claimed(), arguments=bytes(MIB))
    portion.received([large] * 100)
    assert portion.rows == CLAIM_BYTES_AIM // MIB
    portion.received([large] * portion.rows)
    grown = portion.rows
    assert grown == 2 * CLAIM_BYTES_AIM // MIB
    portion.failed(grown)
    assert portion.rows == grown // 2
    portion.failed(1)
    assert portion.rows == 1
    for _ in range(10):
        portion.received([claimed()])
    assert portion.rows == CLAIM_BATCH_MAX
