"""Settings of the property tests."""

from __future__ import annotations

import os

import hypothesis

# A busy machine is not a failure, and CI gets the same result for the same code. `make soak` runs
# many more examples.
hypothesis.settings.register_profile(
    "holdfast",
    deadline=None,
    derandomize=os.environ.get("CI") == "true",
    max_examples=int(os.environ.get("HOLDFAST_TEST_EXAMPLES", "50")),
)
hypothesis.settings.load_profile("holdfast")
