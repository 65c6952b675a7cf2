"""What a record says about a job, and what it has no room for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import BadArguments, PayloadTooLarge, State
from holdfast.runtime.seam import Seam
from holdfast_systems.documents.salesforce.client.clock import ServerClock
from holdfast_systems.documents.salesforce.store.limits import DATA_CHARS_MAX, ERROR_CHARS_MAX
from holdfast_systems.documents.salesforce.store.records import (
    Record,
    new_fields,
    read_error,
    write_error,
    write_time,
)
from tests.systems.documents.bench import new_job

pytestmark = pytest.mark.heavy

NOW = datetime(2026, 11, 16, 3, tzinfo=UTC)
codes = st.from_regex(r"[A-Z][A-Z_0-9]{0,30}", fullmatch=True)


@given(codes, st.text(), st.booleans())
def test_an_error_is_one_line_that_tells_its_code(code: str, text: str, exhausted: bool) -> None:
    line = write_error(code, text, exhausted=exhausted)
    assert len(line.splitlines()) == 1
    assert len(line) <= ERROR_CHARS_MAX
    record = Record(id="a" * 15, status="FAILED", error=line)
    assert record.state is (State.DEAD if exhausted else State.FAILED)
    assert read_error(line)[0].startswith(code)


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=3650)))
def test_a_written_time_is_never_early(wait: timedelta) -> None:
    written = datetime.fromisoformat(write_time(NOW + wait))
    assert timedelta(0) <= written - (NOW + wait) < timedelta(seconds=1)
    assert written.microsecond == 0


def test_a_higher_priority_in_salesforce_is_a_lower_number_in_the_engine() -> None:
    assert new_fields(new_job(priority=-7), NOW)["Priority__c"] == 7
    assert Record(id="a" * 15, raw_priority=7.0).priority == -7
    assert Record(id="a" * 15, raw_priority=10.0**8).priority == -32768
    assert Record(id="a" * 15).priority == 0


def test_attempts_below_zero_are_none() -> None:
    record = Record(id="a00000000000001", raw_attempts=-5.0)
    assert record.claimed(1, "c", 4).attempt == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"tenant": "t"},
        {"tags": ("a",)},
        {"expires_in_seconds": 5.0},
        {"id_is_chosen": True},
        {"name": "resize"},
        {"queue": "images"},
        {"arguments": b'{"template":"a","width":3}'},
        {"arguments": b'{"data":{}}'},
    ],
)
def test_what_a_record_has_no_room_for_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(BadArguments):
        new_fields(new_job(**changes), NOW)


def test_data_that_do_not_fit_are_refused() -> None:
    arguments = b'{"template":"a","data":"' + b"x" * DATA_CHARS_MAX + b'"}'
    with pytest.raises(PayloadTooLarge):
        new_fields(new_job(arguments=arguments), NOW)


class SteppedSeam(Seam):
    """A machine whose clock is moved by hand."""

    seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds


@given(
    st.lists(
        st.tuples(st.floats(min_value=0.01, max_value=40), st.floats(min_value=0, max_value=1)),
        min_size=1,
    )
)
def test_the_clock_is_never_ahead_of_salesforces(steps: list[tuple[float, float]]) -> None:
    seam = SteppedSeam()
    clock = ServerClock(seam)
    for passed, old in steps:
        seam.seconds += passed
        there = NOW + timedelta(seconds=seam.seconds)
        clock.read(format_datetime(there - timedelta(seconds=old), usegmt=True))
        # The header has whole seconds, and is up to a second old.
        assert timedelta(seconds=-0.001) <= there - clock.now() < timedelta(seconds=2.001)


def test_the_highest_reading_is_the_nearest() -> None:
    seam = SteppedSeam()
    clock = ServerClock(seam)
    for fraction in (0.9, 1.0, 1.7):  # the header says 0, 1 and 1
        seam.seconds = 1000.0 + fraction
        clock.read(format_datetime(NOW + timedelta(seconds=fraction), usegmt=True))
    assert clock.now() == NOW + timedelta(seconds=1.7)


def test_a_clock_that_was_set_back_is_followed() -> None:
    seam = SteppedSeam()
    clock = ServerClock(seam)
    clock.read(format_datetime(NOW, usegmt=True))
    clock.read(format_datetime(NOW - timedelta(hours=1), usegmt=True))
    assert clock.now() == NOW - timedelta(hours=1)
    clock.read("no date")
    clock.read(None)
    assert clock.now() == NOW - timedelta(hours=1)
