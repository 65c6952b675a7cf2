"""Every record is a job: ids convert both ways."""

from __future__ import annotations

from uuid import RFC_4122, UUID, uuid4, uuid5

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.ids import IdMaker
from holdfast.runtime.seam import Seam
from holdfast_systems.documents.salesforce.client import job_id_of, record_id_of
from holdfast_systems.documents.salesforce.local.ids import DIGITS, suffix_of

pytestmark = pytest.mark.heavy

short_ids = st.text(DIGITS, min_size=15, max_size=15)


@given(short_ids)
def test_a_record_id_becomes_a_job_id_and_is_found_again(short: str) -> None:
    long = short + suffix_of(short)
    job_id = job_id_of(short)
    assert job_id == job_id_of(long)
    assert record_id_of(job_id) == long
    assert (job_id.version, job_id.variant) == (8, RFC_4122)


@given(short_ids, short_ids)
def test_job_ids_are_in_the_order_of_record_ids(first: str, second: str) -> None:
    assert (first < second) == (job_id_of(first) < job_id_of(second))


@given(st.uuids())
def test_an_id_of_another_kind_is_no_record(job_id: UUID) -> None:
    found = record_id_of(job_id)
    assert found is None or job_id_of(found) == job_id


def test_ids_that_others_make_are_no_records() -> None:
    made = IdMaker(Seam().random).make(1)
    for job_id in (made, uuid4(), uuid5(made, "a"), UUID(int=0), UUID(int=2**128 - 1)):
        assert record_id_of(job_id) is None


def test_a_number_that_is_too_large_for_a_record_is_none() -> None:
    largest = job_id_of("z" * 15)
    assert record_id_of(UUID(int=largest.int + 1)) is None


@pytest.mark.parametrize("text", ["", "a" * 14, "a" * 16, "a" * 14 + "'", "a" * 15 + "aa!"])
def test_what_is_no_record_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a Salesforce record id"):
        job_id_of(text)
