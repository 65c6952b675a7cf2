"""Decisions about roles, from a package's `privileges.toml`."""

from __future__ import annotations

from functools import cache

from holdfast.domain.privileges import Decisions, read_decisions
from holdfast.runtime.package_files import files


@cache
def load_decisions(package: str, *folder: str) -> Decisions:
    """Read the file in this folder of the package. Without it, there are no decisions."""
    file = files(package)
    for part in (*folder, "privileges.toml"):
        file = file.joinpath(part)
    if not file.is_file():
        return Decisions()
    return read_decisions(file.read_text(encoding="utf-8"), f"privileges.toml of {package}")
