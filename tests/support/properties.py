"""How property tests run here."""

from __future__ import annotations

import os

import hypothesis

# A loaded machine is no failure, and CI gives the same answer to the same code. `make soak` tries
# many more.
hypothesis.settings.register_profile(
    "holdfast",
    deadline=None,
    derandomize=os.environ.get("CI") == "true",
    max_examples=int(os.environ.get("HOLDFAST_TEST_EXAMPLES", "50")),
)
hypothesis.settings.load_profile("holdfast")
