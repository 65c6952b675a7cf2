"""What every operation needs from its Holdfast object."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

from holdfast.domain.texts import check_name
from holdfast.job_function import Definition
from holdfast.runtime.seam import Seam
from holdfast.settings import Settings
from holdfast.stores.protocol import Store


@dataclass(frozen=True, slots=True)
class Desk:
    """`store` returns the open store of the running event loop. It and `seam` are functions because
    tests move an object to another database."""

    store: Callable[[], Awaitable[Store]]
    seam: Callable[[], Seam]
    new_id: Callable[[], UUID]
    definitions: Mapping[str, Definition]
    settings: Settings


def check_operator(by: str | None, because: str | None) -> None:
    if by is not None:
        check_name("operator", by)
    if because is not None:
        check_name("reason", because)
