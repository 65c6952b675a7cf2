"""Row-level security: whether it applies to our role, and the settings that its policies read.

`holdfast roles install` enables it. The policies for the role `api` show the rows of the tenant in
the setting `holdfast.tenant`, or all rows if `holdfast.across` is on. The settings end with their
transaction, so they work behind a pooler, and the next transaction doesn't inherit them. All other
roles see all rows, and set nothing.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, NamedTuple

from holdfast.domain.scope import scoped_tenant
from holdfast.stores.postgres.rows import fetch_on

_ALL: Final = "SET LOCAL holdfast.tenant = ''; SET LOCAL holdfast.across = 'on'"


class RowSecurity(NamedTuple):
    """`is_active` means that policies apply to our role, which then can't COPY rows into a table.
    `reads_scope` means that they read the settings."""

    is_active: bool = False
    reads_scope: bool = False


async def find(connection: Any) -> RowSecurity:
    (row,) = await fetch_on(connection, "row_security")
    return RowSecurity(**row)


def settings() -> str:
    """The settings of a transaction in the scope of the running task."""
    tenant = scoped_tenant()
    return _ALL if tenant is None else _settings_of(tenant)


@lru_cache(maxsize=1024)
def _settings_of(tenant: str) -> str:
    # SET takes no parameters, and set_config() would take the snapshot too early. E'' reads
    # backslashes in the same way whatever standard_conforming_strings is.
    quoted = tenant.replace("\\", "\\\\").replace("'", "''")
    return f"SET LOCAL holdfast.tenant = E'{quoted}'; SET LOCAL holdfast.across = 'off'"
