"""Database roles: what was installed, and how the database differs from it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from holdfast.domain.errors import BadArguments
from holdfast.domain.privileges import Decisions

DEFAULT_PREFIX: Final = "holdfast"
_PREFIX: Final = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,49}")  # PostgreSQL cuts names at 63 bytes


class InstalledRoles(msgspec.Struct, frozen=True):
    """Roles named `<prefix>_api`, `<prefix>_worker` and so on, and each application's decisions
    about them. `callers` are applications' own roles that may enqueue in their own transactions."""

    prefix: str
    callers: Sequence[str] = ()
    decisions: Mapping[str, Decisions] = {}

    def name(self, role: str) -> str:
        """The name of a role on the server: `shop_api` for `api`."""
        return f"{self.prefix}_{role}"


class RoleDifference(msgspec.Struct, frozen=True):
    """How the database differs from the decisions. `fix` is the statement that fixes the
    difference, or None if a decision is missing."""

    text: str
    fix: str | None


class Installation(msgspec.Struct, frozen=True):
    """`changes` are the differences that were fixed. `urls` has the database URL for each role,
    with its password if it got a new one."""

    roles: InstalledRoles
    changes: Sequence[RoleDifference]
    urls: Mapping[str, str]


def check_prefix(prefix: str) -> None:
    if not _PREFIX.fullmatch(prefix):
        raise BadArguments(
            f"{prefix!r} can't be a prefix of roles: use up to 50 lowercase letters, digits and"
            " underscores, and don't start with a digit or pg_"
        )
