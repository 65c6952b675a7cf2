"""A call to the API and its answer, independent of HTTP: a composite call has several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast_systems.documents.salesforce.local.users import User


@dataclass(frozen=True)
class Call:
    """`path` has the segments after the version."""

    method: str
    version: str
    path: tuple[str, ...]
    user: User
    parameters: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
