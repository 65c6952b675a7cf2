"""Every limit of this system. `docs/systems/passport.md` explains each."""

from __future__ import annotations

from typing import Final

DOCUMENT_BYTES_MAX: Final = 10 * 1024 * 1024
FACTS_MAX: Final = 50_000  # in one document
CELL_CHARS_MAX: Final = 1000
NAME_CHARS_MAX: Final = 200
NUMBER_DIGITS_MAX: Final = 18  # before the point
NUMBER_PLACES_MAX: Final = 12  # after the point
RULES_BYTES_MAX: Final = 64 * 1024
RULES_MAX: Final = 500
EXPRESSION_CHARS_MAX: Final = 2000
EXPRESSION_DEPTH_MAX: Final = 20  # nested parentheses and calls
EXPRESSION_SIGNS_MAX: Final = 200
PAYLOAD_BYTES_MAX: Final = 1024 * 1024
KEYS_FILE_BYTES_MAX: Final = 64 * 1024
FILE_BYTES_MAX: Final = 16 * 1024 * 1024  # each file of a passport, when it is read
QR_SIDE_PIXELS_MAX: Final = 2048  # an image that is verified
PAGE_ROWS_MAX: Final = 100  # of a list
LABEL_FIELDS_MAX: Final = 6
LABEL_CHARS_MAX: Final = 34  # of a name or value on the label
SNAPSHOT_FACTS_MAX: Final = 100_000
RULE_STEPS_MAX: Final = 10_000_000  # operations on single values, for one passport
STEP_SECONDS_MAX: Final = 300  # one attempt of a job
OPEN_SECONDS_MAX: Final = 30 * 86400  # a snapshot that is not sealed by then is removed
VERIFY_VERSIONS_MAX: Final = 50  # in one job
EXPIRE_SNAPSHOTS_MAX: Final = 100  # in one job
