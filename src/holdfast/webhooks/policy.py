"""The settings of a subscription, and what follows an attempt. Pure decisions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import msgspec

from holdfast import ConfigurationError, HoldfastError, Retry
from holdfast.webhooks import limits
from holdfast.webhooks.presets import Preset

_MINUTE: Final = 60.0
_HOUR: Final = 60 * _MINUTE

STANDARD: Final = Retry.schedule(
    [5, 5 * _MINUTE, 30 * _MINUTE, 2 * _HOUR, 5 * _HOUR, 10 * _HOUR, 10 * _HOUR], jitter=0.2
)

# Refusals that may be temporary. Every other 3xx and 4xx is about the request itself.
_TEMPORARY: Final = frozenset({408, 410, 425, 429})
GONE: Final = 410  # the receiver wants nothing more


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of an application's webhooks, combined with those of a preset.

    They are stored with each subscription, and every worker that delivers to it follows them.
    """

    https_only: bool
    allow_private_addresses: bool
    retry: Retry
    timeout_seconds: float
    guard_seconds: float
    disable_after_seconds: float = limits.DISABLE_AFTER_SECONDS
    refusals_are_permanent: bool = False

    def __post_init__(self) -> None:
        if type(self.retry) is not Retry:
            raise ConfigurationError(
                "retry must be built with Retry's own methods so that it can be stored"
            )
        if not 0 < self.timeout_seconds <= limits.TIMEOUT_SECONDS_MAX:
            raise ConfigurationError(
                f"timeout_seconds must be more than 0 and at most {limits.TIMEOUT_SECONDS_MAX:g}"
            )
        if not limits.GUARD_SECONDS_MIN <= self.guard_seconds <= limits.GUARD_SECONDS_MAX:
            raise ConfigurationError(
                f"guard_seconds must be {limits.GUARD_SECONDS_MIN:g} to"
                f" {limits.GUARD_SECONDS_MAX:g}, not {self.guard_seconds}"
            )
        low, high = limits.DISABLE_AFTER_SECONDS_MIN, limits.DISABLE_AFTER_SECONDS_MAX
        if not low <= self.disable_after_seconds <= high:
            raise ConfigurationError(
                f"disable_after_seconds must be {low:g} to {high:g},"
                f" not {self.disable_after_seconds}"
            )

    def under(self, preset: Preset) -> Policy:
        return msgspec.structs.replace(
            self,
            retry=preset.retry or self.retry,
            refusals_are_permanent=preset.refusals_are_permanent,
        )

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def decode(cls, stored: str) -> Policy:
        return msgspec.json.decode(stored, type=cls)


_FALLBACK: Final = Policy(
    https_only=True,
    allow_private_addresses=False,
    retry=STANDARD,
    timeout_seconds=limits.TIMEOUT_SECONDS,
    guard_seconds=limits.GUARD_SECONDS,
)


@lru_cache(maxsize=1000)
def read_policy(stored: str) -> Policy:
    """Read the policy for a decision. One that this version can't read must not block the others:
    the defaults replace it, and its deliveries fail."""
    try:
        return Policy.decode(stored)
    except (msgspec.MsgspecError, HoldfastError):
        return _FALLBACK


@dataclass(frozen=True, slots=True)
class Delivered:
    pass


@dataclass(frozen=True, slots=True)
class TryAgain:
    delay_seconds: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    error_code: str


Decision = Delivered | TryAgain | GiveUp


def is_success(response_status: int | None) -> bool:
    return response_status is not None and 200 <= response_status < 300


def is_refusal(response_status: int | None) -> bool:
    """Would the receiver reject the same request again?"""
    if response_status is None:
        return False
    return 300 <= response_status < 500 and response_status not in _TEMPORARY


def decide(
    policy: Policy,
    attempts_made: int,
    failures: int,
    response_status: int | None,
    error_code: str | None,
    chance: float,
    retry_after_seconds: float | None = None,
) -> Decision:
    """Decide what follows the last attempt. `failures` counts those with its error code; `chance`
    in [0, 1) picks the jitter of the delay. `retry_after_seconds` is the least delay that the
    receiver asked for."""
    if error_code is None:
        return Delivered()
    if response_status == GONE:
        return GiveUp(error_code)
    if policy.refusals_are_permanent and is_refusal(response_status):
        return GiveUp(error_code)
    retry = policy.retry
    limit = retry.limit_for(error_code)
    if attempts_made >= retry.max_attempts or (limit is not None and failures >= limit):
        return GiveUp(error_code)
    asked = min(retry_after_seconds or 0.0, limits.RETRY_AFTER_SECONDS_MAX)
    return TryAgain(max(retry.delay_seconds(attempts_made, chance), asked))
