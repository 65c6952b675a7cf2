"""A secret in a file next to an SQLite database, for development."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from contextlib import suppress

from holdfast.domain.errors import ConfigurationError


def read_or_make(file: str, make: Callable[[], str], *, what: str, variable: str) -> bytes:
    """Read the file. The first process creates it, atomically, readable only by its user."""
    try:
        with suppress(FileNotFoundError):
            return _read(file)
        draft = f"{file}.{secrets.token_hex(8)}"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(descriptor, "w", encoding="ascii") as writing:
                writing.write(make())
                writing.flush()
                os.fsync(descriptor)
            with suppress(FileExistsError):  # another process was first
                os.link(draft, file)
        finally:
            os.unlink(draft)
        return _read(file)
    except OSError as error:
        raise ConfigurationError(
            f"can't use {what} in {file}: {error.strerror}; make the file readable by this user, or"
            f" set {variable}"
        ) from error


def _read(file: str) -> bytes:
    with open(file, "rb") as reading:
        return reading.read()
