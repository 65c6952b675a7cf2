"""Read files from outside, up to a size limit."""

from __future__ import annotations

from pathlib import Path

from holdfast_systems.passport.errors import ValidationError


def read_limited(path: Path, bytes_max: int) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(bytes_max + 1)
    except OSError as error:
        raise ValidationError(f"{path.name} can't be read: {error.strerror}") from None
    if len(content) > bytes_max:
        raise ValidationError(f"{path.name} is larger than {bytes_max} bytes")
    return content
