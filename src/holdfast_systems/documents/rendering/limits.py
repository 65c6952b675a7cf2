"""Every limit of rendering in one place."""

RENDER_SECONDS_MAX = 20.0
DATA_BYTES_MAX = 1_000_000
PDF_BYTES_MAX = 25_000_000
CHILDREN_MAX = 4
CHILD_RENDERS_MAX = 500
CHILD_SECONDS_MAX = 30.0  # per document, if nobody is left to stop the child
CHILD_MEMORY_BYTES_MAX = 1_000_000_000
MISSING_CHARS_MAX = 60  # shown in an error, of the characters that no font has
