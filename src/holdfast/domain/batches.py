"""How much goes into one statement: bounded by rows and by bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from holdfast.domain.job import Claimed, Settlement
from holdfast.domain.limits import CLAIM_BATCH_MAX, CLAIM_BYTES_AIM, CLAIM_BYTES_MAX

T = TypeVar("T")


def batches(
    items: Sequence[T], rows_max: int, bytes_max: int, size: Callable[[T], int]
) -> Iterator[Sequence[T]]:
    """Cut into batches; one that is too large by itself is alone in its batch."""
    first = held = 0
    for place, item in enumerate(items):
        taken = size(item)
        if place > first and (place - first == rows_max or held + taken > bytes_max):
            yield items[first:place]
            first, held = place, 0
        held += taken
    if first < len(items):
        yield items[first:]


def settled_bytes(settlement: Settlement) -> int:
    """What a settlement takes on its way, as far as that can be much."""
    return len(settlement.result or b"") + len(settlement.error_text or "")


class Portion:
    """How many jobs a claim asks for, so that its answer is not too large to travel or to hold.

    How large jobs are is known only when they come: a claim that brought more than it should, or
    whose answer did not come, makes the next ones smaller; they grow back while little comes.
    """

    def __init__(self, payload_bytes_max: int) -> None:
        self._rows_max = max(1, min(CLAIM_BATCH_MAX, CLAIM_BYTES_MAX // payload_bytes_max))
        self.rows = self._rows_max

    def came(self, jobs: Sequence[Claimed]) -> None:
        held = sum([len(job.arguments) for job in jobs])
        if held > CLAIM_BYTES_AIM:
            self.rows = max(1, min(self._rows_max, len(jobs) * CLAIM_BYTES_AIM // held))
        elif self.rows < self._rows_max:
            self.rows = min(self._rows_max, 2 * self.rows)

    def failed(self, asked_for: int) -> None:
        self.rows = max(1, min(self._rows_max, asked_for // 2))
