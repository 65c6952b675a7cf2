"""How much goes into one statement, bounded by rows and by bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from holdfast.domain.job import Claimed, Settlement
from holdfast.domain.limits import CLAIM_BATCH_MAX, CLAIM_BYTES_AIM, CLAIM_BYTES_MAX

T = TypeVar("T")


def batches(
    items: Sequence[T], rows_max: int, bytes_max: int, size: Callable[[T], int]
) -> Iterator[Sequence[T]]:
    """Split into batches. An item larger than `bytes_max` gets a batch of its own."""
    first = total = 0
    for place, item in enumerate(items):
        added = size(item)
        if place > first and (place - first == rows_max or total + added > bytes_max):
            yield items[first:place]
            first, total = place, 0
        total += added
    if first < len(items):
        yield items[first:]


def settled_bytes(settlement: Settlement) -> int:
    """The size of the parts of a settlement that can be large."""
    return len(settlement.result or b"") + len(settlement.error_text or "")


class Portion:
    """How many jobs a claim asks for, so that its answer is not too large to send or keep.

    A claim that returned too much, or failed, makes the next ones smaller. They grow back while
    answers are small.
    """

    def __init__(self, payload_bytes_max: int) -> None:
        self._rows_max = max(1, min(CLAIM_BATCH_MAX, CLAIM_BYTES_MAX // payload_bytes_max))
        self.rows = self._rows_max

    def received(self, jobs: Sequence[Claimed]) -> None:
        size = sum([len(job.arguments) for job in jobs])
        if size > CLAIM_BYTES_AIM:
            self.rows = max(1, min(self._rows_max, len(jobs) * CLAIM_BYTES_AIM // size))
        elif self.rows < self._rows_max:
            self.rows = min(self._rows_max, 2 * self.rows)

    def failed(self, asked_for: int) -> None:
        self.rows = max(1, min(self._rows_max, asked_for // 2))
