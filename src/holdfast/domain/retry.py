"""When a failed job is retried, and how often."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from holdfast.domain.errors import ConfigurationError
from holdfast.domain.limits import ATTEMPTS_MAX, DELAY_SECONDS_MAX
from holdfast.domain.texts import check_range

_check = partial(check_range, error=ConfigurationError)


@dataclass(frozen=True, slots=True)
class Retry:
    """A retry policy. Create it with `Retry.exponential`, `Retry.schedule` or `Retry.none`.

    `jitter` is a share of the delay: 0.2 varies it by up to 20 % either way. `jitter_seconds` adds
    to it: 5 adds 0 to 5 s.
    """

    max_attempts: int
    base_seconds: float = 0.0
    factor: float = 1.0
    cap_seconds: float = DELAY_SECONDS_MAX
    delays: tuple[float, ...] = ()
    jitter: float = 0.0
    jitter_seconds: float = 0.0
    limits: dict[str, int] = field(default_factory=dict)  # by error code

    def __post_init__(self) -> None:
        _check("max_attempts", self.max_attempts, 1, ATTEMPTS_MAX)
        _check("jitter", self.jitter, 0, 1)
        if not 1 <= self.factor < math.inf:
            raise ConfigurationError(f"factor must be finite and at least 1, not {self.factor}")
        seconds = (self.base_seconds, self.cap_seconds, self.jitter_seconds, *self.delays)
        if any(not 0 <= value <= DELAY_SECONDS_MAX for value in seconds):
            raise ConfigurationError(
                f"delays must be 0 to {DELAY_SECONDS_MAX} seconds, not {seconds}"
            )

    @classmethod
    def exponential(
        cls,
        *,
        max_attempts: int = 5,
        base: float = 2.0,
        factor: float = 2.0,
        cap: float = 3600.0,
        jitter: float = 0.1,
        jitter_seconds: float = 0.0,
    ) -> Retry:
        """Wait `base` seconds, then `factor` times longer after each failure, up to `cap`.

        Jitter is added last, so that capped delays of many jobs don't coincide.
        """
        return cls(
            max_attempts=max_attempts,
            base_seconds=base,
            factor=factor,
            cap_seconds=cap,
            jitter=jitter,
            jitter_seconds=jitter_seconds,
        )

    @classmethod
    def schedule(
        cls,
        delays: Sequence[float],
        *,
        max_attempts: int | None = None,
        jitter: float = 0.0,
        jitter_seconds: float = 0.0,
    ) -> Retry:
        """Wait these seconds, one after the other. If attempts remain, the last one repeats."""
        if not delays:
            raise ConfigurationError(
                "Retry.schedule needs at least one delay; use Retry.none for no retries"
            )
        return cls(
            max_attempts=len(delays) + 1 if max_attempts is None else max_attempts,
            delays=tuple(delays),
            jitter=jitter,
            jitter_seconds=jitter_seconds,
        )

    @classmethod
    def none(cls) -> Retry:
        """Do not retry."""
        return cls(max_attempts=1)

    def limit(self, code: str, failures_max: int) -> Retry:
        """Return the same policy, but a job is dead after this many failures with this code.

        Only failures with the code count: errors with other codes use up attempts, not this limit.
        """
        _check(f"the limit for {code}", failures_max, 1, self.max_attempts)
        return replace(self, limits={**self.limits, code: failures_max})

    def limit_for(self, code: str) -> int | None:
        """The most failures with this code, if it has a limit."""
        return self.limits.get(code)

    def delay_seconds(self, failed_attempts: int, chance: float) -> float:
        """The delay after the nth failed attempt; `chance` in [0, 1) places it in the jitter."""
        if self.delays:
            plain = self.delays[min(failed_attempts, len(self.delays)) - 1]
        else:
            plain = self._exponential_seconds(failed_attempts)
        spread = plain * self.jitter * (2 * chance - 1)
        wait = plain + spread + self.jitter_seconds * chance
        return min(max(0.0, wait), DELAY_SECONDS_MAX)

    def _exponential_seconds(self, failed_attempts: int) -> float:
        try:
            grown = self.base_seconds * self.factor ** (failed_attempts - 1)
        except OverflowError:
            return self.cap_seconds
        return min(self.cap_seconds, grown)
