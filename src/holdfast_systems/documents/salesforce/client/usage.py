"""How many calls Salesforce has answered today: for this process, and for the organization."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from typing import Final
from weakref import WeakValueDictionary

_USAGE: Final = re.compile(r"api-usage=(\d{1,12})/(\d{1,12})")


class Usage:
    """Salesforce says in each answer how many of the organization's calls are used."""

    def __init__(self) -> None:
        self._day: date | None = None
        self._calls = 0
        self.used = 0
        self.limit = 0

    def count(self, now: datetime, header: str | None) -> None:
        if self._day != now.date():
            self._day, self._calls = now.date(), 0
        self._calls += 1
        found = _USAGE.search(header or "")
        if found:
            self.used, self.limit = int(found[1]), int(found[2])

    def calls_on(self, now: datetime) -> int:
        """The calls of this process on this day."""
        return self._calls if self._day == now.date() else 0

    @property
    def share(self) -> float:
        """What part of the organization's calls is used, from 0 to 1 or more."""
        return self.used / self.limit if self.limit else 0.0


def seconds_left(now: datetime) -> float:
    """Seconds until the day ends."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    return (midnight - now).total_seconds()


_shared: WeakValueDictionary[str, Usage] = WeakValueDictionary()


def usage_of(host: str, client_id: str) -> Usage:
    """All clients in this process that log in alike count together."""
    return _shared.setdefault(f"{client_id}@{host}", Usage())
