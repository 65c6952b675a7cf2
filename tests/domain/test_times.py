"""Times: which ones are taken, and that every one that a database can hold is read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import BadArguments, ConfigurationError, Filter, Holdfast
from holdfast.domain.times import EARLIEST, FIRST, LAST, LATEST, check_time, exact, relative
from holdfast.stores.postgres import types
from holdfast.stores.sqlite import rows
from tests.support import properties  # noqa: F401

pytestmark = pytest.mark.both_postgres

NOW = datetime(2026, 11, 17, tzinfo=UTC)
ENDS = [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]
OFFSETS = st.timedeltas(timedelta(hours=-23, minutes=-59), timedelta(hours=23, minutes=59))
ZONES = st.one_of(st.none(), st.just(UTC), OFFSETS.map(timezone))
TIMES = st.one_of(
    st.datetimes(timezones=ZONES),
    st.builds(lambda end, zone: end.replace(tzinfo=zone), st.sampled_from(ENDS), ZONES),
)
STORED = st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from([-(2**63), 2**63 - 1]))


@given(TIMES)
def test_a_time_is_taken_or_refused_in_words(time: datetime) -> None:
    if time.tzinfo is None or not EARLIEST <= time <= LATEST:
        with pytest.raises(BadArguments, match="run_at"):
            check_time("run_at", time)
        return
    check_time("run_at", time)
    microseconds = rows.from_time(time)
    assert rows.to_time(microseconds) == time
    assert types.to_time(types.from_time(time)) == time


@given(STORED, STORED, OFFSETS)
def test_every_stored_time_is_read_shown_and_in_order(
    one: int, another: int, offset: timedelta
) -> None:
    for read in (rows.to_time, lambda stored: types.to_time((stored,))):
        time = read(one)
        assert FIRST <= time <= LAST
        time.astimezone(timezone(offset))
        assert exact(time)
        assert relative(time, NOW)
        assert (one <= another) <= (time <= read(another))


@given(STORED)
def test_a_claim_goes_on_before_everything_that_it_has_not_seen(stored: int) -> None:
    """What stands for all times beyond the ends is written as the end itself."""
    (written,) = types.from_time(types.to_time((stored,)))
    assert written == stored or (written < stored if stored < 0 else written > stored)
    assert types.to_time((written,)) == types.to_time((stored,))


@pytest.mark.parametrize("end", ENDS, ids=["min", "max"])
@pytest.mark.parametrize("hours", [-14, 0, 14])
async def test_the_ends_of_time_are_refused_where_they_are_given(
    hf: Holdfast, end: datetime, hours: int
) -> None:
    @hf.job
    async def nothing() -> None: ...

    time = end.replace(tzinfo=timezone(timedelta(hours=hours)))
    with pytest.raises(BadArguments, match="run_at must be between the years 1970 and 2999"):
        nothing.options(run_at=time)
    with pytest.raises(BadArguments, match="since must be between the years"):
        await hf.jobs.list(Filter(since=time))
    with pytest.raises(BadArguments, match="until must be between the years"):
        await hf.dead.grouped(Filter(until=time))
    assert (await hf.jobs.list(Filter())).jobs == []


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0, 1e300])
async def test_lengths_of_time_are_bounded(local_hf: Holdfast, seconds: Any) -> None:
    with pytest.raises(ConfigurationError, match="lease_seconds"):
        Holdfast("sqlite:///jobs.db", lease_seconds=seconds)
    with pytest.raises(BadArguments, match="transaction_seconds"):
        await local_hf.examine(transaction_seconds=seconds)


async def test_a_result_is_not_awaited_for_what_is_no_number_of_seconds(
    local_hf: Holdfast,
) -> None:
    """A timer for it would get all timers of the event loop out of order."""

    @local_hf.job
    async def nothing() -> None: ...

    job = await nothing.enqueue()
    with pytest.raises(BadArguments, match="timeout_seconds must be a number"):
        await local_hf.result(job.id, timeout_seconds=float("nan"))
