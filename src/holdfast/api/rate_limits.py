"""Rate limits: a token bucket per key and per address, in this process."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable

from holdfast.api.problems import Problem


class RateLimits:
    """A bucket holds one second's worth of requests, at least one. It starts full."""

    def __init__(self, monotonic: Callable[[], float], count_max: int) -> None:
        self._monotonic = monotonic
        self._count_max = count_max
        self._buckets: dict[Hashable, tuple[float, float]] = {}  # tokens, and when

    def wait_seconds(self, who: Hashable, per_second: float) -> float:
        """How long until a request is allowed. 0 means now."""
        return max(0.0, (1.0 - self._tokens(who, per_second)) / per_second)

    def take(self, who: Hashable, per_second: float) -> bool:
        """Take a token, and return whether there was one."""
        tokens = self._tokens(who, per_second)
        if tokens < 1.0:
            return False
        self._buckets.pop(who, None)
        self._buckets[who] = tokens - 1.0, self._monotonic()
        if len(self._buckets) > self._count_max:
            del self._buckets[next(iter(self._buckets))]  # the least recently used
        return True

    def _tokens(self, who: Hashable, per_second: float) -> float:
        most = max(1.0, per_second)
        tokens, at = self._buckets.get(who, (most, 0.0))
        return min(most, tokens + (self._monotonic() - at) * per_second)


def too_many(detail: str, per_second: float, wait_seconds: float) -> Problem:
    """The 429 response, with the headers of draft-ietf-httpapi-ratelimit-headers."""
    wait = math.ceil(wait_seconds) or 1
    quota, window = (int(per_second), 1) if per_second >= 1 else (1, math.ceil(1 / per_second))
    headers = {
        "retry-after": str(wait),
        "ratelimit": f'"default";r=0;t={wait}',
        "ratelimit-policy": f'"default";q={quota};w={window}',
    }
    return Problem("too-many-requests", f"{detail}; try again in {wait} s", headers=headers)
