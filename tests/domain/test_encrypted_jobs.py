"""How encrypted values are stored: bound to their job's name and tenant, and never confused."""

from __future__ import annotations

import asyncio
import base64
import itertools
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import BadArguments, CannotDecrypt, EncryptedValue, State, UnstorableValue
from holdfast.domain import codec
from holdfast.domain.encrypted_jobs import JobCipher, is_encrypted, witnessed
from holdfast.domain.encryption import SecretKeys, make_keys
from holdfast.domain.job import Job, JobStatus, NewJob, Watched

K1, K2 = make_keys("k1"), make_keys("k2")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
ABOUT = st.tuples(st.text(max_size=9), st.text(max_size=9))
FORGED: dict[str, Any] = {"$encrypted": {"key": "k1", "data": "AAAA"}}


def cipher(*keys: str) -> JobCipher:
    return JobCipher(SecretKeys.parse(",".join(keys), "the test"))


CIPHER = cipher(K1)


def new_job(body: bytes = b'{"card":1}', key: str | None = "order-1") -> NewJob:
    hashed = None if key is None else codec.body_hash("charge", body)
    return NewJob(id=uuid4(), name="charge", arguments=body, idempotency_key=key, body_hash=hashed)


def job(**values: Any) -> Job:
    now = datetime.now(UTC)
    return Job(
        id=uuid4(),
        name="charge",
        state=State.SUCCEEDED,
        queue="default",
        priority=0,
        max_attempts=1,
        run_at=now,
        created_at=now,
        **{"arguments": {}, **values},
    )


@given(JSON, ABOUT, ABOUT)
def test_a_value_comes_back_for_its_own_job_only(
    value: Any, about: tuple[str, str], other: tuple[str, str]
) -> None:
    clear = msgspec.json.encode(value)
    stored = CIPHER.encrypt(*about, "result", clear)
    assert is_encrypted(stored)
    assert CIPHER.decrypt(*about, "result", stored) == clear
    assert msgspec.json.encode(msgspec.json.decode(stored)) == stored
    with pytest.raises(CannotDecrypt):
        CIPHER.decrypt(*about, "progress", stored)
    if about != other:
        with pytest.raises(CannotDecrypt):
            CIPHER.decrypt(*other, "result", stored)


@given(JSON)
def test_a_value_in_clear_is_never_taken_for_an_encrypted_one(value: Any) -> None:
    clear = msgspec.json.encode(value)
    assert CIPHER.decrypt("default", "charge", "result", clear) == clear
    seen = job(result=value)
    assert CIPHER.shown(seen) is seen


@pytest.mark.parametrize(
    "value",
    [
        {"$encrypted": None},
        {"$encrypted": {"key": "k1"}},
        {"$encrypted": {"key": "k1", "data": "no base64!"}},
        {"$encrypted": {"key": "k1", "data": "AAAA", "more": 1}},
        {**FORGED, "more": 1},
        [FORGED],
        {"inside": FORGED},
    ],
)
def test_only_the_exact_form_is_reserved(value: Any) -> None:
    stored = codec.Results(1000).encode(value)
    assert msgspec.json.decode(stored) == value
    seen = job(result=value)
    assert CIPHER.shown(seen) is seen


def test_what_has_the_reserved_form_is_refused_wherever_a_user_may_write_it() -> None:
    results = codec.Results(1000, replaces=True)
    with pytest.raises(UnstorableValue, match="reserved"):
        results.encode(FORGED)
    with pytest.raises(UnstorableValue, match="reserved"):
        results.encode_progress(FORGED)
    with pytest.raises(BadArguments, match="reserved"):
        codec.encode_arguments(FORGED, bytes_max=1000)


def test_the_limit_of_a_size_is_that_of_the_value_in_clear() -> None:
    results = codec.Results(10, encrypt=CIPHER.encryptor("default", "charge"))
    stored = results.encode("x" * 8)
    assert len(stored) > 10
    assert CIPHER.decrypt("default", "charge", "result", stored) == b'"xxxxxxxx"'
    with pytest.raises(UnstorableValue, match="larger than 10 bytes"):
        results.encode("x" * 9)


def test_without_its_key_a_value_is_a_mark_that_prints_and_is_json() -> None:
    stored = msgspec.json.decode(CIPHER.encrypt("default", "charge", "result", b'"secret"'))
    assert CIPHER.shown(job(result=stored)).result == "secret"
    shown = cipher(K2).shown(job(result=stored))
    assert shown.encrypted
    assert shown.result == EncryptedValue(key="k1")
    assert str(shown.result) == "encrypted with key k1"
    assert msgspec.json.encode(shown.result) == b'{"encrypted":true,"key":"k1"}'


def test_a_changed_value_is_not_decrypted() -> None:
    stored = msgspec.json.decode(CIPHER.encrypt("default", "charge", "result", b'"secret"'))
    data = bytearray(base64.b64decode(stored["$encrypted"]["data"]))
    data[-1] ^= 1
    stored["$encrypted"]["data"] = base64.b64encode(data).decode()
    assert CIPHER.shown(job(result=stored)).result == EncryptedValue(key="k1")


def test_the_progress_of_a_watched_job_is_decrypted() -> None:
    stored = msgspec.json.decode(CIPHER.encrypt("acme", "charge", "progress", b"[1]"))
    status = JobStatus.of(job(progress=stored))
    assert CIPHER.shown_watched(Watched("1", "acme", "charge", status)).status.progress == [1]
    moved = CIPHER.shown_watched(Watched("1", "other", "charge", status))
    assert moved.status.progress == EncryptedValue(key="k1")


def test_a_body_is_recognized_under_every_known_key_and_in_clear() -> None:
    plain = new_job()
    assert plain.body_hash is not None
    before, after = cipher(K1).encrypted(new_job()), cipher(K2, K1).encrypted(new_job())
    hashes = [each.body_hash for each in (plain, before, after)]
    assert all(first != second for first, second in itertools.combinations(hashes, 2))
    assert all(after.has_body(each or b"") for each in hashes)
    assert before.has_body(plain.body_hash)
    other = cipher(K2, K1).encrypted(new_job(b'{"card":2}'))
    assert not any(other.has_body(each or b"") for each in hashes)


def test_equal_bodies_of_different_idempotency_keys_look_different() -> None:
    one, two = CIPHER.encrypted(new_job(key="a")), CIPHER.encrypted(new_job(key="b"))
    assert one.body_hash != two.body_hash
    assert CIPHER.encrypted(new_job(key=None)).body_hash is None


async def test_a_witness_sees_what_the_tasks_of_its_block_decrypt() -> None:
    stored = msgspec.json.decode(CIPHER.encrypt("default", "charge", "result", b"1"))

    async def look(with_key: JobCipher) -> None:
        with_key.shown(job(result=stored))

    with witnessed() as witness:
        await asyncio.gather(look(cipher(K2)))
        assert not witness.has_decrypted
        await asyncio.gather(look(CIPHER))
        assert witness.has_decrypted
    with witnessed() as witness:
        assert not witness.has_decrypted
