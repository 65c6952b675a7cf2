"""A capability of stores whose database has roles. Few have them: a full store needs none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from holdfast.domain.privileges import Decisions
from holdfast.domain.roles import InstalledRoles, RoleDifference


@runtime_checkable
class Roles(Protocol):
    """Database roles, one for each kind of process. The store need not be open, and adds its own
    decisions to those that it is given."""

    async def installed_roles(self) -> InstalledRoles | None:
        """What was last installed, or None."""

    async def install_roles(
        self,
        change: Callable[[InstalledRoles | None], InstalledRoles],
        verifiers: Mapping[str, str],
    ) -> tuple[InstalledRoles, Sequence[RoleDifference]]:
        """Make the database match what is wanted, in one transaction. `change` gets what is
        installed and returns what is wanted; `verifiers` are SCRAM verifiers of new passwords, by
        role. Return what is installed now, and what differed."""

    async def role_differences(self, wanted: InstalledRoles) -> Sequence[RoleDifference]:
        """How the database differs from what is wanted. Changes nothing."""

    async def remove_roles(self) -> Mapping[str, Sequence[str]]:
        """Undo `install_roles`; return the roles that are used elsewhere, and where."""

    async def migrate_as_owner(
        self,
        connection: Any,
        decisions: Mapping[str, Decisions],
        migrate: Callable[[], Awaitable[Sequence[str]]],
    ) -> list[str]:
        """Run the steps of a migration in the connection's transaction, as the schema's owner, and
        apply the decisions. Without roles, only run the steps."""
