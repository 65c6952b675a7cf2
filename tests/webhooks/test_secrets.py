"""The secrets of subscriptions: encrypted, bound to their rows, and rotated without a failure."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from holdfast import BadArguments, ConfigurationError, Job, Reencrypted, SecretCount, State
from holdfast.domain.encryption import make_keys
from holdfast.operations.secrets import VARIABLE
from holdfast.webhooks import BadEndpoint, SubscriptionNotFound
from holdfast.webhooks.presets import STANDARD_WEBHOOKS
from tests.webhooks.receiving import Received, Receiver
from tests.webhooks.shop import Shop, both_stores
from tests.webhooks.test_rules_of_the_database import REFUSED

pytestmark = [pytest.mark.heavy, both_stores]

K1, K2 = make_keys("k1"), make_keys("k2")
COLUMNS = "id, secret, key_id, ciphertext, expires_at"


@pytest.fixture
def under_k1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, K1)


def is_genuine(request: Received, secret: str) -> bool:
    try:
        Webhook(secret).verify(request.body, request.headers)
    except WebhookVerificationError:
        return False
    return True


async def waiting(shop: Shop) -> list[Job]:
    return [job for job in await shop.jobs() if job.state is State.QUEUED]


async def put_in_clear(shop: Shop, secret: str) -> None:
    """Make the only secret one from before secrets were encrypted."""
    await shop.fetch(
        f"UPDATE holdfast.webhook_secrets SET secret = '{secret}', key_id = NULL, ciphertext = NULL"
    )


async def test_only_the_caller_learns_a_secret(
    shop: Shop, receiver: Receiver, under_k1: None
) -> None:
    made = await shop.webhooks.subscribe(receiver.url)
    (row,) = await shop.fetch(f"SELECT {COLUMNS} FROM holdfast.webhook_secrets")
    assert (row["secret"], row["key_id"]) == (None, "k1")
    assert made.secret.encode() not in bytes(row["ciphertext"])
    await shop.publish()
    await shop.hf.run_due()
    (request,) = receiver.requests
    assert is_genuine(request, made.secret)


async def test_the_database_refuses_a_new_secret_in_clear(shop: Shop) -> None:
    made = await shop.webhooks.subscribe("https://example.org/")
    with pytest.raises(REFUSED, match="a new secret must be encrypted"):
        await shop.fetch(
            "INSERT INTO holdfast.webhook_secrets (id, tenant, subscription_id, secret, created_at)"
            f" VALUES ('{uuid4()}', 'default', '{made.id}', 'whsec_x', '2026-01-01T00:00:00Z')"
        )


async def test_a_secret_that_was_moved_to_another_subscription_is_not_used(
    shop: Shop, receiver: Receiver, under_k1: None
) -> None:
    await shop.webhooks.subscribe(receiver.url, event_types=["order.paid"])
    await shop.webhooks.subscribe(receiver.url, event_types=["other"])
    await shop.fetch(
        "UPDATE holdfast.webhook_secrets SET ciphertext ="
        " (SELECT ciphertext FROM holdfast.webhook_secrets ORDER BY id LIMIT 1)"
    )
    await shop.webhooks.publish("other", {})
    await shop.publish()
    await shop.hf.run_due()
    told = [(await shop.hf.jobs.why(job.id)).sentence for job in await waiting(shop)]
    assert len(receiver.requests) == 1  # the subscription that the secret belongs to
    assert ["it was changed or moved" in each for each in told] == [True]


async def test_secrets_in_clear_sign_and_are_encrypted_later(
    shop: Shop, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even by a worker that has no keys yet."""
    made = await shop.webhooks.subscribe(receiver.url)
    await put_in_clear(shop, made.secret)
    monkeypatch.setenv(VARIABLE, "")
    await shop.publish()
    await shop.hf.run_due()
    with pytest.raises(ConfigurationError, match=VARIABLE):
        await shop.webhooks.subscribe(receiver.url)
    monkeypatch.setenv(VARIABLE, K1)
    assert [(each.key_id, each.count) for each in await shop.hf.secrets.status()] == [(None, 1)]
    told: list[tuple[str, int]] = []
    done = await shop.hf.secrets.reencrypt(progress=lambda *step: told.append(step))
    assert (done.count, done.left, told) == (1, [], [("webhook_secrets", 1)])
    (row,) = await shop.fetch(f"SELECT {COLUMNS} FROM holdfast.webhook_secrets")
    assert (row["secret"], row["key_id"]) == (None, "k1")
    await shop.publish()
    await shop.hf.run_due()
    assert [is_genuine(each, made.secret) for each in receiver.requests] == [True, True]


async def test_a_worker_without_the_key_leaves_the_delivery_to_another(
    shop: Shop, receiver: Receiver, under_k1: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await shop.webhooks.subscribe(receiver.url)
    event = await shop.publish()
    monkeypatch.setenv(VARIABLE, K2)
    await shop.hf.run_due()
    released = await waiting(shop)
    assert [job.error_code for job in released] == ["HANDED_BACK"]
    job = released[0]
    why = await shop.hf.jobs.why(job.id)
    assert "waiting for a worker that can run it" in why.sentence
    assert "the secret key 'k1' is unknown here; add it to HOLDFAST_SECRET_KEYS" in why.sentence
    assert receiver.requests == []
    monkeypatch.setenv(VARIABLE, f"{K2},{K1}")
    await shop.hf.jobs.retry(job.id)
    await shop.hf.run_due()
    (attempt,) = await shop.webhooks.attempts((await shop.saga(event)).id)
    assert (attempt.status, attempt.attempt_no) == ("Completed", 1)
    assert is_genuine(receiver.requests[0], made.secret)


async def test_keys_are_rotated_while_deliveries_run(
    shop: Shop, receiver: Receiver, under_k1: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [await shop.webhooks.subscribe(f"{receiver.url}/{number}") for number in range(12)]

    async def rotate() -> Reencrypted:
        for keys in (f"{K1},{K2}", f"{K2},{K1}"):  # known everywhere, then current
            monkeypatch.setenv(VARIABLE, keys)
            await shop.publish()
        done = await shop.hf.secrets.reencrypt(batch_rows=5)
        monkeypatch.setenv(VARIABLE, K2)
        await shop.publish()
        return done

    await shop.publish()
    rotating = asyncio.create_task(rotate())
    while not rotating.done():
        await shop.hf.run_due()
    done = await rotating
    await shop.hf.run_due()
    assert (done.count, done.left) == (12, [])
    secrets = {f"/hook/{number}": each.secret for number, each in enumerate(made)}
    assert len(receiver.requests) == 4 * len(made)
    assert all(is_genuine(each, secrets[each.path]) for each in receiver.requests)
    failed = "SELECT id FROM holdfast.webhook_attempts WHERE status <> 'Completed'"
    assert await shop.fetch(failed) == []
    (count,) = await shop.hf.secrets.status()
    assert count == SecretCount(
        kind="webhook_secrets", key_id="k2", count=12, is_current=True, is_known=True
    )


async def test_what_a_missing_key_encrypted_is_left_and_counted(
    shop: Shop, under_k1: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shop.webhooks.subscribe("https://example.org/")
    monkeypatch.setenv(VARIABLE, K2)
    await shop.webhooks.subscribe("https://example.org/")
    done = await shop.hf.secrets.reencrypt()
    (left,) = done.left
    assert (done.count, left.key_id, left.count, left.is_known) == (0, "k1", 1, False)
    monkeypatch.setenv(VARIABLE, f"{K2},{make_keys('k1')}")  # another key of that name
    done = await shop.hf.secrets.reencrypt()
    assert (done.count, [each.is_known for each in done.left]) == (0, [True])
    monkeypatch.setenv(VARIABLE, f"{K2},{K1}")
    assert (await shop.hf.secrets.reencrypt()).left == []


async def test_a_secret_that_changed_meanwhile_is_not_overwritten(
    shop: Shop, under_k1: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two operators re-encrypt at once, and one of them has read an older text."""
    made = await shop.webhooks.subscribe("https://example.org/")
    (row,) = await shop.fetch(f"SELECT {COLUMNS} FROM holdfast.webhook_secrets")
    monkeypatch.setenv(VARIABLE, f"{K2},{K1}")
    await shop.hf.secrets.reencrypt()
    (current,) = await shop.fetch(f"SELECT {COLUMNS} FROM holdfast.webhook_secrets")
    tables = shop.webhooks._tables
    for old in (bytes(row["ciphertext"]), None):
        async with shop.hf.transaction() as connection:
            changed = await tables.on(connection).execute(
                "reencrypt_secret", id=row["id"], old=old, key_id="late", ciphertext=b"late"
            )
        assert changed == 0
    assert await shop.fetch(f"SELECT {COLUMNS} FROM holdfast.webhook_secrets") == [current]
    assert made.secret  # and the receiver's stays what it is


async def test_a_rotated_secret_signs_too_until_its_end(shop: Shop, receiver: Receiver) -> None:
    made = await shop.webhooks.subscribe(receiver.url)
    renewed = await shop.webhooks.rotate_secret(made.id, keep_seconds=3600)
    assert (renewed.id, renewed.url) == (made.id, made.url)
    assert renewed.secret != made.secret
    assert renewed.secret not in repr(renewed)
    await shop.publish()
    await shop.hf.run_due()
    await shop.fetch(
        "UPDATE holdfast.webhook_secrets SET expires_at = '2026-01-01T00:00:00.000000Z'"
        " WHERE expires_at IS NOT NULL"
    )
    await shop.publish()
    await shop.hf.run_due()
    both, one = receiver.requests
    assert [is_genuine(both, secret) for secret in (made.secret, renewed.secret)] == [True, True]
    assert [is_genuine(one, secret) for secret in (made.secret, renewed.secret)] == [False, True]
    rows = await shop.fetch(f"SELECT {COLUMNS} FROM holdfast.webhook_secrets ORDER BY id")
    assert [row["ciphertext"] is None for row in rows] == [True, False]


async def test_a_leaked_secret_ends_at_once(shop: Shop, receiver: Receiver) -> None:
    made = await shop.webhooks.subscribe(receiver.url)
    second = await shop.webhooks.rotate_secret(made.id)
    own = STANDARD_WEBHOOKS.make_secret()
    third = await shop.webhooks.rotate_secret(made.id, keep_seconds=0, secret=own)
    assert third.secret == own
    await shop.publish()
    await shop.hf.run_due()
    (request,) = receiver.requests
    genuine = [is_genuine(request, each.secret) for each in (made, second, third)]
    assert genuine == [False, False, True]


async def test_a_rotation_that_is_refused_changes_nothing(shop: Shop, receiver: Receiver) -> None:
    made = await shop.webhooks.subscribe(receiver.url)
    with pytest.raises(SubscriptionNotFound, match="does not exist"):
        await shop.webhooks.rotate_secret(uuid4())
    with pytest.raises(BadArguments, match="keep_seconds"):
        await shop.webhooks.rotate_secret(made.id, keep_seconds=-1)
    with pytest.raises(BadEndpoint, match="a secret must"):
        await shop.webhooks.rotate_secret(made.id, secret="whsec_c2hvcnQ=")
    (row,) = await shop.fetch(f"SELECT {COLUMNS} FROM holdfast.webhook_secrets")
    assert row["expires_at"] is None
