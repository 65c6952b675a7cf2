"""Every limit of rendering in one place."""

from __future__ import annotations

RENDER_SECONDS_MAX = 20.0
DATA_BYTES_MAX = 1_000_000
PDF_BYTES_MAX = 25_000_000
CHILDREN_MAX = 4
CHILD_RENDERS_MAX = 500
CHILD_SECONDS_MAX = 30.0  # of one rendering, if nobody is left to stop it
CHILD_MEMORY_BYTES_MAX = 1_000_000_000
MISSING_CHARS_MAX = 60  # told of those that no font has
