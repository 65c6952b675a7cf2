"""What a pooler in transaction mode can't give: wake-ups, and a session of one's own."""

from __future__ import annotations

import os
from typing import Final

import pytest

EVERYTHING_BOUNCED: Final = "HOLDFAST_TEST_BOUNCER"  # =1: all tests reach PostgreSQL through it

needs_a_session = pytest.mark.skipif(
    os.environ.get(EVERYTHING_BOUNCED) == "1",
    reason="a pooler in transaction mode gives no wake-ups and no session",
)
