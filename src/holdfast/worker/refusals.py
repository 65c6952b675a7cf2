"""What the database refuses of the upkeep."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from logging import ERROR

from holdfast.domain.errors import StoreRefused
from holdfast.observability import logs


@contextmanager
def telling_refusals() -> Iterator[None]:
    """What stands in the way of upkeep keeps nobody from working."""
    try:
        yield
    except StoreRefused as error:
        logs.event(ERROR, "tidy_refused", str(error))
