"""What the database refuses during upkeep."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from logging import ERROR

from holdfast.domain.errors import StoreRefused
from holdfast.observability import logs


@contextmanager
def logging_refusals() -> Iterator[None]:
    """Log a refusal and continue: failed upkeep must not stop the worker."""
    try:
        yield
    except StoreRefused as error:
        logs.event(ERROR, "tidy_refused", str(error))
