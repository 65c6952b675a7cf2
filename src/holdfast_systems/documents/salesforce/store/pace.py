"""How often to poll: less often when calls get scarce."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl
from weakref import WeakKeyDictionary

import msgspec

from holdfast.store_api import ConfigurationError, Seam
from holdfast_systems.documents.salesforce.client import Salesforce
from holdfast_systems.documents.salesforce.client.usage import seconds_left
from holdfast_systems.documents.salesforce.store import limits


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a URL may add: `salesforce://...@host?poll_seconds=30&calls_per_day=5000`."""

    poll_seconds: float = limits.POLL_SECONDS
    calls_per_day: int | None = None


def read_options(url: str) -> Options:
    given: dict[str, Any] = dict(parse_qsl(url.partition("?")[2], keep_blank_values=True))
    try:
        options = msgspec.convert(given, Options, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigurationError(
            f"the options in the Salesforce URL are invalid ({error}); it takes poll_seconds and"
            " calls_per_day, as in ?poll_seconds=15&calls_per_day=10000"
        ) from None
    budget = options.calls_per_day
    if not options.poll_seconds > 0 or (budget is not None and budget < 1):
        raise ConfigurationError("poll_seconds and calls_per_day must be above 0")
    return options


def wait_seconds(
    poll_seconds: float, share: float, calls_left: int | None, day_seconds_left: float
) -> float:
    """Seconds between two polls. From 80 % of the organization's calls on they get longer, and what
    is left of a budget is spread over the rest of the day."""
    high, full = limits.USAGE_HIGH, limits.USAGE_FULL
    scarcity = min(1.0, max(0.0, (share - high) / (full - high)))
    seconds = poll_seconds * (1 + scarcity * (limits.SLOWDOWN_MAX - 1))
    if calls_left is None:
        return seconds
    return max(seconds, day_seconds_left / calls_left) if calls_left > 0 else day_seconds_left


class Pace:
    """When to poll next, for all stores of one app: those of its workers and their reclaimers.

    A poll also sees records whose lock has expired, so that nobody has to ask for these alone.
    """

    def __init__(self, seam: Seam, options: Options) -> None:
        self._seam = seam
        self._options = options
        self._polled_at = self._reclaimed_at = -float("inf")
        self._is_idle = False
        self._lapsed = False
        self._told: object = None

    def is_poll_due(self, salesforce: Salesforce) -> bool:
        if self._is_spent(salesforce):
            return False
        return not self._is_idle or self._has_passed(self._polled_at, salesforce)

    def is_reclaim_due(self, salesforce: Salesforce) -> bool:
        if self._is_spent(salesforce):
            return False
        seen_at = max(self._polled_at, self._reclaimed_at)
        return self._lapsed or self._has_passed(seen_at, salesforce)

    def polled(self, *, saw_all: bool, is_idle: bool, lapsed: bool) -> None:
        """Note a poll. An idle one found nothing more to claim now."""
        if saw_all:
            self._polled_at = self._seam.monotonic()
        self._is_idle, self._lapsed = is_idle and saw_all, lapsed

    def reclaimed(self, count: int) -> None:
        self._reclaimed_at, self._lapsed = self._seam.monotonic(), False
        if count:
            self.wake()

    def wake(self) -> None:
        """Poll at the next opportunity."""
        self._is_idle = False

    def take_news(self, salesforce: Salesforce) -> str:
        """Return a sentence about a budget that is used up, once a day."""
        today = salesforce.now().date()
        if not self._is_spent(salesforce) or self._told == today:
            return ""
        self._told = today
        return (
            f"today's budget of {self._options.calls_per_day} calls to Salesforce is used up; no"
            " documents are started until midnight (UTC)"
        )

    def _has_passed(self, since: float, salesforce: Salesforce) -> bool:
        now = salesforce.now()
        seconds = wait_seconds(
            self._options.poll_seconds,
            salesforce.usage.share,
            self._calls_left(salesforce, now),
            seconds_left(now),
        )
        return self._seam.monotonic() - since >= seconds

    def _calls_left(self, salesforce: Salesforce, now: datetime) -> int | None:
        budget = self._options.calls_per_day
        return None if budget is None else max(0, budget - salesforce.usage.calls_on(now))

    def _is_spent(self, salesforce: Salesforce) -> bool:
        return self._calls_left(salesforce, salesforce.now()) == 0


_paces: WeakKeyDictionary[Seam, Pace] = WeakKeyDictionary()


def pace_of(seam: Seam, url: str) -> Pace:
    """The pace of an app: its stores have the same seam."""
    return _paces.setdefault(seam, Pace(seam, read_options(url)))
