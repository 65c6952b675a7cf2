"""How many groups of errors nobody has dealt with yet, for the menu of every page."""

from __future__ import annotations

from typing import Final, NamedTuple

from holdfast.api.callers import Caller
from holdfast.dashboard.limits import GROUPS_SHOWN_MAX
from holdfast.domain.errors import HoldfastError
from holdfast.domain.groups import GroupState

UNATTENDED: Final = (GroupState.NEW, GroupState.BACK)


class Unattended(NamedTuple):
    """`is_more` says that there are more than this many groups."""

    groups: int
    is_more: bool

    @property
    def text(self) -> str:
        return f"{self.groups}+" if self.is_more else str(self.groups)

    @property
    def spoken(self) -> str:
        if self == (1, False):
            return "1 group of errors needs attention"
        more = "more than " if self.is_more else ""
        return f"{more}{self.groups} groups of errors need attention"


async def count_unattended(caller: Caller) -> Unattended | None:
    """None if there are none, or if this database can't tell."""
    try:
        counts = await caller.dead.group_counts()
    except HoldfastError:
        return None
    groups = sum(counts.groups[state] for state in UNATTENDED)
    is_more = counts.capped or groups > GROUPS_SHOWN_MAX
    return Unattended(min(groups, GROUPS_SHOWN_MAX), is_more) if groups else None
