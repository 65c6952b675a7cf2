"""Every limit of rendering in one place."""

RENDER_SECONDS_MAX = 20.0
DATA_BYTES_MAX = 1_000_000
PDF_BYTES_MAX = 25_000_000
MEMORY_BYTES_MAX = 1_000_000_000  # of one process
MISSING_CHARS_MAX = 60  # shown in an error, of the characters that no font has
