"""Log breakers that opened when failures of this process were counted."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from logging import WARNING

from holdfast.observability import logs
from holdfast.stores.protocol import Breakers


class Openings:
    """Logs each opening once. An API server has no `worker_id`."""

    def __init__(self, worker_id: str | None = None) -> None:
        self._worker_id = worker_id
        self._struck: set[str] = set()
        self._logged: dict[str, datetime | None] = {}

    def struck(self, keys: Iterable[str]) -> None:
        """Failures were counted against these breakers: they may have opened."""
        self._struck.update(keys)

    async def look(self, breakers: Breakers) -> None:
        """Check all that were struck since the last look that succeeded."""
        struck = self._struck.copy()
        if not struck:
            return
        opened = {each.key: each for each in await breakers.breakers() if each.is_open}
        for key in sorted(struck & opened.keys()):
            breaker = opened[key]
            if self._logged.get(key) == breaker.opened_at:
                continue
            logs.event(
                WARNING,
                "breaker_opened",
                f"its jobs wait and lose no attempt: {breaker.opened_because}",
                worker_id=self._worker_id,
                count=breaker.failures,
                breaker=key,
            )
        self._logged = {key: breaker.opened_at for key, breaker in opened.items()}
        self._struck -= struck

    def forget(self) -> None:
        """No breaker is open."""
        self._struck.clear()
