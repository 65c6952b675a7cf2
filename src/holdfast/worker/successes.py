"""The last success of each breaker's jobs in this process, to be sent with the next failure."""

from __future__ import annotations

from holdfast.domain.breakers import Strike
from holdfast.domain.limits import BREAKERS_REMEMBERED_MAX
from holdfast.runtime.seam import Seam


class Successes:
    def __init__(self, seam: Seam) -> None:
        self._seam = seam
        self._worked: dict[str, float] = {}

    def note(self, key: str, monotonic: float) -> None:
        self._worked.pop(key, None)
        self._worked[key] = monotonic
        if len(self._worked) > BREAKERS_REMEMBERED_MAX:
            del self._worked[next(iter(self._worked))]

    def dated(self, strike: Strike, failed_monotonic: float) -> Strike:
        """The strike of a failure at this time, with the last success."""
        now = self._seam.monotonic()
        worked = self._worked.get(strike.key)
        return strike._replace(
            failed_seconds_ago=now - failed_monotonic,
            worked_seconds_ago=None if worked is None else now - worked,
        )
