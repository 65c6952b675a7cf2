"""When a failed job is tried again, and how often."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from holdfast.domain.errors import ConfigurationError
from holdfast.domain.limits import ATTEMPTS_MAX, DELAY_SECONDS_MAX


@dataclass(frozen=True, slots=True)
class Retry:
    """A retry policy: made by `exponential`, `schedule` or `none`.

    `jitter` is a share of the delay (0.2: from 20 % less to 20 % more), `jitter_seconds` is added
    on top (5: from 0 to 5 s more).
    """

    max_attempts: int
    base_seconds: float = 0.0
    factor: float = 1.0
    cap_seconds: float = DELAY_SECONDS_MAX
    delays: tuple[float, ...] = ()
    jitter: float = 0.0
    jitter_seconds: float = 0.0
    attempts_by_code: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 1 <= self.max_attempts <= ATTEMPTS_MAX:
            raise ConfigurationError(
                f"max_attempts must be 1 to {ATTEMPTS_MAX}, not {self.max_attempts}"
            )
        if not 0 <= self.jitter <= 1:
            raise ConfigurationError(f"jitter must be 0 to 1, not {self.jitter}")
        if not 1 <= self.factor < math.inf:
            raise ConfigurationError(f"factor must be a number from 1 up, not {self.factor}")
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
        """Wait `base`, then `factor` times longer after each failed attempt, at most `cap`.

        Jitter comes on top, so that the capped delays of many jobs don't fall together.
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
        """Wait exactly these seconds; with more attempts than delays the last one repeats."""
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
        """Try once."""
        return cls(max_attempts=1)

    def limit(self, code: str, max_attempts: int) -> Retry:
        """The same policy, but an error with this code ends the job at `max_attempts`."""
        if not 1 <= max_attempts <= self.max_attempts:
            raise ConfigurationError(
                f"the limit for {code} must be 1 to {self.max_attempts}, not {max_attempts}"
            )
        return replace(self, attempts_by_code={**self.attempts_by_code, code: max_attempts})

    def attempts_allowed(self, code: str, max_attempts: int) -> int:
        return min(max_attempts, self.attempts_by_code.get(code, max_attempts))

    def delay_seconds(self, failed_attempts: int, chance: float) -> float:
        """The wait after the n-th failed attempt; `chance` in [0, 1) places it in the jitter."""
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
