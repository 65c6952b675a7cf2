"""A pytest plugin: refuse to test anything but the copy of the engine that was named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import holdfast

SOURCE = "HOLDFAST_TEST_SOURCE"


def pytest_configure() -> None:
    found = Path(holdfast.__file__).parent.parent
    wanted = Path(os.environ[SOURCE])
    if found != wanted:
        pytest.exit(f"holdfast comes from {found}, not from {wanted}", returncode=9)
