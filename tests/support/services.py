"""What the tests need from the machine. A missing service is a skip locally, a failure in CI."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

EVERYWHERE = "HOLDFAST_TEST_EVERYWHERE"


def fast() -> bool:
    """Is this the short run (`make test FAST=1`)?"""
    return os.environ.get("HOLDFAST_TEST_FAST") == "1"


def everywhere() -> bool:
    """Does every test run on every server (`make soak`)?"""
    return os.environ.get(EVERYWHERE) == "1"


def missing(reason: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
