"""What the gateway's answers and the disk's errors mean for a job."""

from __future__ import annotations

import errno

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast import ConfigurationError, Permanent, RetryAfter, Transient
from holdfast_systems.convert.failures import (
    ConversionRefused,
    check_mapping,
    of_file,
    of_status,
    one_line,
    retry_after_seconds,
)
from holdfast_systems.convert.limits import ERROR_MESSAGE_CHARS_MAX, RETRY_AFTER_SECONDS_MAX
from holdfast_systems.convert.settings import ConvertSettings

pytestmark = pytest.mark.heavy

AGAIN = {408, 425, 429}


def test_every_status_has_its_meaning() -> None:
    for status in range(300, 600):
        error = of_status(status, {}, "why")
        expected = (
            (Transient, "GW_5XX") if status >= 500
            else (Transient, "GW_4XX") if status in AGAIN
            else (Permanent, "GW_4XX")
        )  # fmt: skip
        assert (type(error), error.code) == expected


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_honored(status: int) -> None:
    error = of_status(status, {"Retry-After": "120"}, "")
    assert isinstance(error, RetryAfter)
    assert error.seconds == 120


def test_a_date_in_retry_after_counts_from_the_answers_own_date() -> None:
    sent = {"Date": "Mon, 16 Nov 2026 03:00:00 GMT"}
    assert retry_after_seconds({**sent, "Retry-After": "Mon, 16 Nov 2026 03:01:30 GMT"}) == 90
    assert retry_after_seconds({**sent, "Retry-After": "Mon, 16 Nov 2026 02:00:00 GMT"}) == 0
    assert retry_after_seconds({"Retry-After": "Mon, 16 Nov 2026 03:01:30 GMT"}) is None


@given(st.text(), st.text())
@example("Mon, 16 Nov 99999999999999999999 03:00:00 GMT", "Mon, 16 Nov 2026 03:00:00 GMT")
@example("Mon, 16 Nov 2026 03:00:00 +999999999999999", "Mon, 16 Nov 2026 03:00:00 GMT")
def test_no_retry_after_can_do_harm(value: str, date: str) -> None:
    seconds = retry_after_seconds({"Retry-After": value, "Date": date})
    assert seconds is None or 0 <= seconds <= RETRY_AFTER_SECONDS_MAX


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_permanent(number: int) -> None:
    error = of_file(OSError(number, "it is full", "/secret/place"))
    assert isinstance(error, Permanent)
    assert (error.code, str(error)) == (
        "IO_ERROR",
        "can't read or write a file: it is full",
    )


def test_any_other_trouble_with_files_is_tried_once_more() -> None:
    error = of_file(OSError(errno.EIO, "input/output error"))
    assert (type(error), error.code) == (Transient, "IO_ERROR")
    retry = ConvertSettings(gateway_url="http://gateway").retry
    assert (retry.limit_for("IO_ERROR"), retry.limit_for("GW_5XX")) == (2, None)


@given(st.text(max_size=1000))
def test_an_error_message_is_one_short_printable_line(text: str) -> None:
    line = one_line(text)
    assert len(line) <= ERROR_MESSAGE_CHARS_MAX
    assert len(line.splitlines()) <= 1
    assert line.isprintable()


@given(st.text())
def test_only_mappings_of_the_list_are_allowed(mapping: str) -> None:
    allowed = ("text", "layout", "invoice")
    if mapping in allowed:
        check_mapping(mapping, allowed)
    else:
        with pytest.raises(ConversionRefused):
            check_mapping(mapping, allowed)


def test_the_environment_gives_the_settings_and_the_defaults_stand_for_the_rest() -> None:
    environment = {
        "DATABASE_URL": "postgresql://u:secret@h/convert_jobs_dev?schema=public",
        "GATEWAY_URL": "http://gateway:8080",
        "WORKER_LEASE_TTL_SEC": "600",
        "GATEWAY_TIMEOUT_MS": "1500",
        "UPLOADS_KEPT_SEC": "3600",
    }
    settings = ConvertSettings.from_environment(environment)
    assert (settings.concurrency, settings.max_attempts) == (4, 3)
    assert (settings.lease_seconds, settings.gateway_timeout_seconds) == (600, 1.5)
    assert (str(settings.uploads_dir), str(settings.results_dir)) == (
        "/app/uploads",
        "/app/results",
    )
    assert (settings.uploads_kept_seconds, settings.results_kept_seconds) == (3600, 2_592_000)
    assert "secret" not in repr(settings)
    hf = settings.make_holdfast()
    assert (hf.settings.lease_seconds, hf.settings.concurrency) == (600, 4)
    assert ConvertSettings(gateway_url="http://g").gateway_timeout_seconds == 180


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"GATEWAY_URL": "gateway:8080"},
        {"GATEWAY_URL": "http://[::1"},
        {"GATEWAY_URL": "http://g:99999"},
        {"GATEWAY_URL": "http://gate..way"},
        {"GATEWAY_URL": f"http://{'g' * 64}"},
        {"GATEWAY_URL": "http://g/?key=secret"},
        {"GATEWAY_URL": "http://g", "WORKER_CONCURRENCY": "many"},
        {"GATEWAY_URL": "http://g", "GATEWAY_TIMEOUT_MS": "0"},
        {"GATEWAY_URL": "http://g", "GATEWAY_TIMEOUT_MS": "inf"},
        {"GATEWAY_URL": "http://g", "UPLOADS_KEPT_SEC": "0"},
        {"GATEWAY_URL": "http://g", "UPLOADS_KEPT_SEC": "nan"},
        {"GATEWAY_URL": "http://g", "UPLOADS_KEPT_SEC": "60", "RESULTS_KEPT_SEC": "59"},
        {"GATEWAY_URL": "http://g", "RESULTS_KEPT_SEC": "1e12"},
    ],
)
def test_settings_that_cannot_be_right_are_told_at_once(environment: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError) as told:
        ConvertSettings.from_environment(environment)
    assert "secret" not in str(told.value)
