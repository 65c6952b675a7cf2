"""What a pooler in transaction mode can't provide: wake-ups and sessions."""

from __future__ import annotations

import os
from typing import Final

import pytest

EVERYTHING_BOUNCED: Final = "HOLDFAST_TEST_BOUNCER"  # =1: all tests reach PostgreSQL through it

needs_a_session = pytest.mark.skipif(
    os.environ.get(EVERYTHING_BOUNCED) == "1",
    reason="a pooler in transaction mode provides no wake-ups and no sessions",
)
