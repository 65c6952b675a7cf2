"""Encrypted jobs: only who has the key sees what they carry, and none is lost without it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from holdfast import (
    Breaker,
    CannotDecrypt,
    ConfigurationError,
    Context,
    EncryptedValue,
    Filter,
    Holdfast,
    IdempotencyConflict,
    Job,
    Permanent,
    Reason,
    Retry,
    Snooze,
    State,
)
from holdfast.domain.encryption import make_keys
from holdfast.domain.limits import RELEASES_MAX
from holdfast.domain.texts import WITHHELD
from holdfast.job_function import JobFunction
from holdfast.operations.secrets import VARIABLE
from holdfast.runtime.seam import Seam
from holdfast.testing.borrowed import borrowed
from tests.support.children import run_all
from tests.support.dumping import dump, found
from tests.support.running import QUICK, execute, seen_events
from tests.worker import child_jobs

K1, K2 = make_keys("k1"), make_keys("k2")
CARD = "4000-0566-5566-5556-canary"
NEVER_AGAIN = Retry.none()


@contextmanager
def keys(*known: str) -> Iterator[None]:
    """The secret keys of this process in the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, ",".join(known))
        yield


@contextmanager
def no_keys() -> Iterator[None]:
    with keys("k0:not-a-key"):
        yield


@pytest.fixture(autouse=True)
def first_key() -> Iterator[None]:
    with keys(K1):
        yield


@pytest.fixture
async def shop(store_url: str) -> AsyncIterator[Shop]:
    shop = Shop(store_url)
    async with shop.hf:
        yield shop


@pytest.fixture
async def local_shop(local_url: str) -> AsyncIterator[Shop]:
    """For what does not depend on the store."""
    shop = Shop(local_url)
    async with shop.hf:
        yield shop


class Shop:
    """An app whose job `charge` takes a card, and does with it what it is told."""

    def __init__(self, url: str, **options: Any) -> None:
        self.url = url
        self.hf = hf = Holdfast(url, **QUICK)
        options = {"encrypted": True, "retry": NEVER_AGAIN, **options}

        @hf.job(**options)
        async def charge(ctx: Context, card: str, how: str = "return") -> Any:
            await ctx.progress([card])
            match how:
                case "complete":
                    async with ctx.completing():
                        ctx.set_result({"paid by": card})
                case "raise":
                    raise ValueError(f"{card} is blocked")
                case "refuse":
                    raise Permanent(f"{card} is blocked", code="BLOCKED")
                case "exit":
                    raise SystemExit(f"{card} is blocked")
                case "snooze":
                    raise Snooze(60, f"{card} is busy")
                case "fail":
                    async with ctx.failing(ValueError(f"{card} is blocked")):
                        pass
            return {"paid by": card}

        self.charge: JobFunction[..., Any] = charge

    async def run(self, *args: Any, **options: Any) -> Job:
        job = await self.charge.options(**options).enqueue(*args)
        await self.hf.run_due()
        return await self.hf.get(job.id)

    def tells(self) -> list[bytes]:
        """The forms of the card that a copy of the database contains."""
        return found(CARD, dump(self.url))


async def test_a_copy_of_the_database_tells_nothing_of_an_encrypted_job(shop: Shop) -> None:
    for how in ("return", "complete"):
        made = await shop.charge.options(tenant="acme").enqueue(CARD, how)
        assert made.arguments == {"card": CARD, "how": how}
        assert made.encrypted
        job = await shop.run(CARD, how, tenant="acme")
        assert (job.state, job.result, job.progress) == (State.SUCCEEDED, {"paid by": CARD}, [CARD])
        assert await shop.hf.result(made) == {"paid by": CARD}
        first, second, *_ = (await shop.hf.for_tenant("acme").jobs.list()).jobs
        assert [first.arguments, second.result] == [made.arguments, job.result]
    assert shop.tells() == []


async def test_without_the_key_an_encrypted_job_is_listed_but_not_read(shop: Shop) -> None:
    job = await shop.run(CARD)
    mark = EncryptedValue(key="k1")
    for others in (keys(K2), no_keys()):
        with others:
            seen = await shop.hf.get(job.id)
            assert (seen.arguments, seen.result, seen.progress) == (mark, mark, mark)
            assert (await shop.hf.jobs.list()).jobs == [seen]
            with pytest.raises(CannotDecrypt, match="is encrypted with key k1"):
                await shop.hf.result(job.id)


async def test_without_keys_nothing_is_enqueued_in_clear(local_shop: Shop) -> None:
    with no_keys(), pytest.raises(ConfigurationError, match=f"charge is encrypted: {VARIABLE}"):
        await local_shop.charge.enqueue(CARD)
    assert (await local_shop.hf.jobs.list()).jobs == []


async def test_an_error_keeps_its_code_and_class_and_place_but_not_its_text(shop: Shop) -> None:
    for how, code, first in [
        ("raise", "ValueError", f"ValueError: {WITHHELD}"),
        ("fail", "ValueError", f"ValueError: {WITHHELD}"),
        ("refuse", "BLOCKED", WITHHELD),
        ("exit", "SystemExit", f"SystemExit: {WITHHELD}"),
    ]:
        job = await shop.run(CARD, how)
        assert job.error_code == code
        line, *places = (job.error_text or "").splitlines()
        assert line == first
        assert how == "fail" or "test_encrypted_jobs.py" in places[-1]
        (attempt,) = await shop.hf.jobs.attempts(job.id)
        assert attempt.error_text == job.error_text
        assert WITHHELD in (await shop.hf.jobs.why(job.id)).sentence
    await shop.hf.dead.count_groups()
    groups = {each.error_code: each.jobs for each in (await shop.hf.dead.groups()).groups}
    assert groups == {"ValueError": 2, "BLOCKED": 1, "SystemExit": 1}
    assert shop.tells() == []


async def test_arguments_that_no_longer_fit_are_named_without_their_values(
    local_shop: Shop,
) -> None:
    job = await local_shop.charge.enqueue(CARD)
    newer = Holdfast(local_shop.url, **QUICK)

    @newer.job(encrypted=True)
    async def charge(card: int) -> None: ...

    async with newer:
        await newer.run_due()
        ended = await newer.get(job.id)
    assert (ended.error_code, ended.error_text) == ("BAD_ARGUMENTS", f"argument card: {WITHHELD}")


async def test_a_breaker_that_opens_does_not_tell_why_in_clear(store_url: str) -> None:
    shop = Shop(store_url, breaker=Breaker("bank", failures=1))
    async with shop.hf:
        await shop.run(CARD, "raise")
        (bank,) = await shop.hf.breakers.list()
    assert bank.is_open
    assert WITHHELD in (bank.opened_because or "")
    assert shop.tells() == []


async def test_a_worker_without_the_key_leaves_the_job_to_another(shop: Shop) -> None:
    job = await shop.charge.enqueue(CARD)
    missing = "the secret key 'k1' is unknown here"
    for others in (keys(K2), no_keys()):
        with others:
            async with seen_events() as seen:
                assert (await shop.hf.run_due()).handed_back == 1
            assert missing in (await seen.first("handed_back")).message
            why = await shop.hf.jobs.why(job.id)
            assert why.code is Reason.HANDED_BACK
            assert missing in why.sentence
        await shop.hf.jobs.retry(job.id)
    assert (await shop.hf.run_due()).succeeded == 1
    assert (await shop.hf.get(job.id)).attempts == 1


async def test_a_job_whose_key_never_comes_fails_with_a_code_of_its_own(shop: Shop) -> None:
    job = await shop.charge.enqueue(CARD)
    await execute(shop.url, f"UPDATE jobs SET releases = {RELEASES_MAX}")
    with keys(K2):
        await shop.hf.run_due()
        ended = await shop.hf.get(job.id)
        assert (ended.state, ended.error_code) == (State.FAILED, "CANNOT_DECRYPT")
        (copy,) = [await shop.hf.dead.requeue(each.id) for each in await dead(shop)]
        assert copy.arguments == EncryptedValue(key="k1")
    await shop.hf.run_due()
    assert (await shop.hf.get(copy.id)).result == {"paid by": CARD}


async def dead(shop: Shop) -> list[Job]:
    return list((await shop.hf.dead.list(Filter(error_code="CANNOT_DECRYPT"))).jobs)


async def test_a_worker_that_can_not_encrypt_the_result_does_not_begin(local_url: str) -> None:
    before, after = Shop(local_url, encrypted=False), Shop(local_url)
    async with before.hf, after.hf:
        job = await before.charge.enqueue(CARD)
        with no_keys():
            assert (await after.hf.run_due()).handed_back == 1
            assert (await after.hf.get(job.id)).progress is None


async def test_rotation_loses_no_job_and_no_idempotency_key(shop: Shop) -> None:
    keyed = shop.charge.options(idempotency_key="order-1")
    first = await keyed.enqueue(CARD)
    with keys(K2, K1):
        assert (await keyed.enqueue(CARD)).id == first.id
        with pytest.raises(IdempotencyConflict):
            await keyed.enqueue("another card")
        second = await shop.charge.enqueue(CARD)
        await shop.hf.run_due()
        assert await shop.hf.result(first.id) == await shop.hf.result(second.id)
    with keys(K2):
        seen = await shop.hf.get(first.id)
        assert seen.arguments == EncryptedValue(key="k1")
        assert seen.result == {"paid by": CARD}


@pytest.mark.parametrize("encrypted_before", [False, True])
async def test_a_deploy_that_changes_the_option_runs_what_waits(
    store_url: str, encrypted_before: bool
) -> None:
    before = Shop(store_url, encrypted=encrypted_before)
    after = Shop(store_url, encrypted=not encrypted_before)
    async with before.hf, after.hf:
        job = await before.charge.options(idempotency_key="order-1").enqueue(CARD)
        if not encrypted_before:
            again = await after.charge.options(idempotency_key="order-1").enqueue(CARD)
            assert again.id == job.id
        await after.hf.run_due()
        with keys(K2):
            seen = await after.hf.get(job.id)
        hidden = EncryptedValue(key="k1")
        assert (seen.result, seen.progress) == (hidden, hidden)
        assert seen.arguments == (hidden if encrypted_before else {"card": CARD})
        assert await after.hf.result(job.id) == {"paid by": CARD}


async def test_a_requeue_needs_the_key_only_to_change_arguments(shop: Shop) -> None:
    job = await shop.run(CARD, "raise")
    changed = {"card": f"{CARD}-2"}
    with no_keys():
        copy = await shop.hf.jobs.requeue(job.id)
        assert [each async for each in shop.hf.dead.requeue_many([job.id], again=True)]
        with pytest.raises(ConfigurationError):
            await shop.hf.jobs.requeue(job.id, arguments=changed)
    mended = await shop.hf.jobs.requeue(job.id, arguments=changed)
    assert mended.arguments == changed
    await shop.hf.run_due()
    assert (await shop.hf.get(copy.id)).error_code == "ValueError"
    assert await shop.hf.result(mended.id) == {"paid by": changed["card"]}
    other = Holdfast(shop.url, **QUICK)  # knows the job by its form alone
    async with other:
        again = await other.jobs.requeue(job.id, arguments=changed)
        assert again.encrypted
    assert shop.tells() == []


async def test_an_alias_keeps_the_name_under_which_the_job_was_encrypted(local_shop: Shop) -> None:
    job = await local_shop.charge.enqueue(CARD)
    newer = Shop(local_shop.url, name="pay", aliases=["charge"])
    async with newer.hf:
        await newer.hf.run_due()
        assert await newer.hf.result(job.id) == {"paid by": CARD}


async def test_values_moved_to_another_tenant_are_not_decrypted(shop: Shop) -> None:
    job = await shop.charge.enqueue(CARD)
    await execute(shop.url, "UPDATE jobs SET tenant = 'thief'")
    assert (await shop.hf.get(job.id)).arguments == EncryptedValue(key="k1")
    assert (await shop.hf.run_due()).handed_back == 1


async def test_a_transaction_of_the_caller_enqueues_an_encrypted_job(shop: Shop) -> None:
    async with shop.hf.transaction() as connection:
        job = await shop.charge.options(connection=connection).enqueue(CARD)
        assert job.arguments == {"card": CARD}
    assert shop.tells() == []
    await shop.hf.run_due()
    assert await shop.hf.result(job) == {"paid by": CARD}


@pytest.mark.heavy
async def test_a_child_process_gets_and_returns_what_only_the_worker_encrypts(
    local_url: str,
) -> None:
    confide = child_jobs.confide
    async with borrowed(child_jobs.hf, local_url, Seam()):
        jobs = [await confide.enqueue(CARD), await confide.enqueue(CARD, fails=True)]
        kept, failed = await run_all(child_jobs.hf, *jobs, concurrency=1)
    assert [kept.progress, failed.progress] == [f"confiding {CARD}"] * 2
    assert kept.result == CARD.upper()
    assert (failed.error_text or "").startswith(f"ValueError: {WITHHELD}\n")
    told = dump(local_url)
    assert (found(CARD, told), found(CARD.upper(), told)) == ([], [])


def test_the_option_is_true_or_false(local_url: str) -> None:
    async def work() -> None: ...

    wrong: Any = "yes"
    with pytest.raises(ConfigurationError, match="encrypted must be True or False, not 'yes'"):
        Holdfast(local_url).job(encrypted=wrong)(work)
