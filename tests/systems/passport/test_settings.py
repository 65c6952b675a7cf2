"""The names, numbers and limits that were agreed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast import ConfigurationError
from holdfast.settings import read_settings
from holdfast_systems.passport import limits
from holdfast_systems.passport.app import settings_from
from holdfast_systems.passport.errors import PERMANENT_CODES
from holdfast_systems.passport.parts import RETRY

pytestmark = pytest.mark.heavy

PAGE = Path(__file__).parents[3] / "docs/systems/passport.md"


def test_retries_wait_as_agreed() -> None:
    assert [RETRY.delay_seconds(failed, 0.5) for failed in (1, 2, 3, 4)] == [2, 4, 8, 16]
    assert RETRY.max_attempts == 5
    assert RETRY.delay_seconds(20, 0.5) == 1024
    assert set(PERMANENT_CODES) == {
        "SNAPSHOT_NOT_READY",
        "RULE_PKG_NOT_PUBLISHED",
        "VALIDATION_ERROR",
        "RULE_TYPE_ERROR",
        "PAYLOAD_TOO_LARGE",
        "SIGNING_KEY_MISSING",
        "QR_ENCODE_FAILED",
    }


def test_the_engine_is_set_by_the_names_of_this_system() -> None:
    settings = read_settings(settings_from({}))
    assert (settings.lease_seconds, settings.renew_seconds, settings.poll_seconds) == (60, 30, 1)
    environment = {
        "BPC_JOBS_LEASE_SECONDS": "20",
        "BPC_JOBS_LEASE_RENEW_SECONDS": "5",
        "BPC_JOBS_POLL_INTERVAL_MS": "250",
    }
    settings = read_settings(settings_from(environment))
    assert (settings.lease_seconds, settings.renew_seconds, settings.poll_seconds) == (20, 5, 0.25)
    shorter = read_settings(settings_from({"BPC_JOBS_LEASE_SECONDS": "20"}))
    assert (shorter.lease_seconds, shorter.renew_seconds) == (20, 10)
    with pytest.raises(ConfigurationError, match="BPC_JOBS_LEASE_SECONDS must be a number"):
        settings_from({"BPC_JOBS_LEASE_SECONDS": "long"})


def test_every_limit_is_documented_with_its_value() -> None:
    page = PAGE.read_text(encoding="utf-8")
    documented = dict(re.findall(r"^\| `(\w+_MAX)` \| ([\d,]+) \|", page, re.MULTILINE))
    named = {name: f"{value:,}" for name, value in vars(limits).items() if name.isupper()}
    assert documented == named
