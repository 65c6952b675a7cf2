from __future__ import annotations

import re
import warnings
from dataclasses import fields
from typing import Any

import pytest

from holdfast import ConfigurationError, Holdfast
from holdfast.settings import DEFAULT_URL, Settings, read_settings
from tests.support.forks import ROOT
from tests.support.pages import assert_documented

PAGE = "docs/reference/settings.md"


def test_what_is_given_wins_over_the_environment_and_that_over_the_default() -> None:
    environment = {"HOLDFAST_LEASE_SECONDS": "60", "HOLDFAST_CONCURRENCY": "7"}
    settings = read_settings({"lease_seconds": 45}, environment)
    assert (settings.lease_seconds, settings.concurrency) == (45.0, 7)
    assert settings.poll_seconds == Settings().poll_seconds


def test_a_variable_that_is_misspelled_is_told_of() -> None:
    with pytest.warns(
        UserWarning, match="CONCURENCY is not a setting.*did you mean 'HOLDFAST_CONCURR"
    ):
        read_settings({}, {"HOLDFAST_CONCURENCY": "7"})
    with pytest.warns(UserWarning, match="did you mean 'HOLDFAST_DATABASE_URL"):
        read_settings({}, {"HOLDFAST_DATABSE_URL": "sqlite:///x.db"})
    anybodys = ("SERVICE_HOST", "PORT", "PORT_5432_TCP", "TEST_WAIT_SECONDS", "CHECKS_SECONDS")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_settings({}, {f"HOLDFAST_{name}": "7" for name in anybodys})


def test_leases_are_renewed_every_third_of_them() -> None:
    assert read_settings({}, {}).renewal_seconds == 10
    assert read_settings({"lease_seconds": 6}, {}).renewal_seconds == 2
    assert read_settings({"renew_seconds": 5}, {}).renewal_seconds == 5


def test_the_environment_of_the_process_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_MAX_ATTEMPTS", "9")
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", "sqlite:///elsewhere.db")
    hf = Holdfast()
    assert hf.settings.max_attempts == 9
    assert hf.url_shown == "sqlite:///elsewhere.db"
    assert Holdfast("sqlite:///given.db").url_shown == "sqlite:///given.db"


def test_without_any_address_the_jobs_are_kept_in_the_working_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("HOLDFAST_DATABASE_URL", raising=False)
    assert Holdfast().url_shown == DEFAULT_URL


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"lease_second": 5}, "did you mean 'lease_seconds'"),
        ({"zzz": 5}, "the settings are: lease_seconds"),
        ({"lease_seconds": 0}, "lease_seconds must be more than 0"),
        ({"lease_seconds": "soon"}, "lease_seconds must be a float"),
        ({"lease_seconds": float("nan")}, "lease_seconds must be more than 0"),
        ({"lease_seconds": float("inf")}, "lease_seconds must be more than 0"),
        ({"grace_seconds": -1}, "grace_seconds must be 0 or more"),
        ({"concurrency": 0}, "concurrency must be more than 0"),
        ({"concurrency": 2.5}, "concurrency must be a int"),
        ({"concurrency": float("inf")}, "concurrency must be a int"),
        ({"concurrency": None}, "concurrency must be a int"),
        ({"renew_seconds": 16}, "at most half of lease_seconds"),
        ({"sqlite_synchronous": "OFF"}, "FULL or NORMAL"),
        ({"metrics_port": -1}, "metrics_port must be 0 or more"),
        ({"metrics_port": 65536}, "metrics_port must be at most 65535"),
        ({"history_kept_rules": "images"}, "is not a rule like"),
        ({"app_version": "2\n0"}, "the app_version '2\\\\n0' contains the character"),
        ({"history_kept_seconds": 1e9}, "at most ten years"),
    ],
    ids=str,
)
def test_a_setting_that_can_not_be_right_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        read_settings(given, {})


def test_a_setting_that_is_true_or_false_is_read_from_words() -> None:
    for word, is_on in {"1": True, "TRUE": True, "on": True, "0": False, "no": False}.items():
        assert read_settings({}, {"HOLDFAST_LOG_ERRORS": word}).log_errors is is_on
    assert read_settings({"log_errors": True}, {}).log_errors
    with pytest.raises(ConfigurationError, match="HOLDFAST_LOG_ERRORS must be a bool, not 'maybe'"):
        read_settings({}, {"HOLDFAST_LOG_ERRORS": "maybe"})


def test_a_bad_value_of_the_environment_is_told_with_the_name_of_its_variable() -> None:
    with pytest.raises(ConfigurationError, match="HOLDFAST_POLL_SECONDS must be a float"):
        read_settings({}, {"HOLDFAST_POLL_SECONDS": "often"})


def test_every_setting_is_documented_with_its_default() -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", text, re.MULTILINE)
    defaults = {field.name: _shown(field.default) for field in fields(Settings)}
    assert_documented(PAGE, dict(rows), defaults)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) and value < 1000 else _grouped(value)


def _grouped(value: object) -> str:
    return f"{value:,.0f}" if isinstance(value, int | float) else str(value) or "none"
