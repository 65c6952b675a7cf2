"""A capability that only stores on some databases need."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class Vacuums(Protocol):
    """A store whose database doesn't clear in time what jobs leave behind as they end."""

    async def vacuum(self) -> None:
        """Clear it, if there is much of it. Called every few seconds by every worker."""
