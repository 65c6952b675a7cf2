"""Leases over HTTP: take, renew and end them. Each job goes once, to those who may have it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from holdfast import ConfigurationError, Holdfast, State
from holdfast.api.limits import LEASE_SECONDS_MIN
from holdfast.stores.protocol import Breakers, require
from holdfast.testing import sandbox
from tests.support.api import served
from tests.support.leasing import end, job_of, make_app, renew, take
from tests.support.processes import wait_until
from tests.support.running import execute, let_leases_run_out, seen_events


async def test_a_worker_leases_a_job_and_reports_its_result(store_url: str) -> None:
    hf = make_app(store_url)
    async with served(hf) as client:
        job = await job_of(hf).options(correlation_id="order-7").enqueue(17)
        (lease,) = await take(client, max=5, worker="render-3")
        shown = {name: lease[name] for name in ("job_id", "name", "queue", "arguments", "attempt")}
        assert shown == {
            "job_id": str(job.id),
            "name": "resize",
            "queue": "images",
            "arguments": {"image": 17},
            "attempt": 1,
        }
        assert (lease["max_attempts"], lease["timeout_seconds"]) == (3, 60)
        assert (lease["tenant"], lease["correlation_id"]) == ("default", "order-7")
        assert 25 < lease["expires_in"] <= 30
        assert lease["renew_after"] == 10
        assert ((await hf.get(job.id)).lease_owner or "").startswith("render-3/")
        answer = await end(client, lease, status="succeeded", result={"width": 2**62})
        assert answer.json() == {
            "job_id": str(job.id),
            "state": "succeeded",
            "attempt": 1,
            "run_at": None,
        }
        assert await hf.result(job) == {"width": 2**62}


@pytest.mark.parametrize("store_url", ["pg15"], indirect=True)
async def test_counts_for_caps_know_for_how_little_a_lease_may_be_renewed(store_url: str) -> None:
    """A lease for a minute may be renewed for a second: counts must not look only for long ones."""
    hf = make_app(store_url)
    async with served(hf) as client:
        await hf.queues.cap("images", 1)
        await job_of(hf).enqueue(1)
        (lease,) = await take(client, ttl_seconds=60)
        assert lease["expires_in"] > 50
        async with hf.transaction(read_only=True) as connection:
            noted = "SELECT shortest_lease_seconds FROM holdfast.queues"
            assert await connection.fetchval(noted) == LEASE_SECONDS_MIN


async def test_arguments_come_byte_for_byte(store_url: str) -> None:
    hf = make_app(store_url)
    async with served(hf) as client:
        await job_of(hf).enqueue([2**63 - 1, 1.0, 1e300, "é"])
        answer = await client.post("/v1/leases", json={})
        assert '"image":[9223372036854775807,1.0,1e300,"é"]' in answer.text


async def test_a_request_waits_for_a_job_that_comes_later(store_url: str) -> None:
    hf = make_app(store_url, poll_seconds=600.0)
    async with served(hf) as client:
        waiting = asyncio.create_task(take(client, wait_seconds=50))
        await wait_until(lambda: hf.claims, "a first look")
        job = await job_of(hf).enqueue(1)
        (lease,) = await waiting
        assert lease["job_id"] == str(job.id)


async def test_without_wake_ups_polling_finds_a_job(store_url: str) -> None:
    hf, other = make_app(store_url), Holdfast(store_url)
    other.job(name="resize", queue="images")(lambda image: None)
    async with served(hf) as client, other:
        job = await other._functions["resize"].options(delay_seconds=0.2).enqueue(1)
        (lease,) = await take(client, wait_seconds=50)
        assert lease["job_id"] == str(job.id)


async def test_a_wait_without_a_job_ends_with_204(local_url: str) -> None:
    hf = make_app(local_url)
    async with served(hf) as client:
        assert await take(client) == []
        assert len(hf.claims) == 1
        answer = await client.post("/v1/leases", json={"wait_seconds": 0.1})
        assert (answer.status_code, answer.content) == (204, b"")


async def test_workers_in_python_leave_remote_jobs_alone(local_url: str) -> None:
    hf = make_app(local_url)
    async with hf:
        remote, own = await job_of(hf).enqueue(1), await job_of(hf, "local").enqueue(1)
        await hf.run_due()
        assert (await hf.get(remote.id)).state is State.QUEUED
        assert (await hf.get(own.id)).state is State.SUCCEEDED
        with pytest.raises(ConfigurationError, match="resize is a remote job"):
            job_of(hf)(1)
    async with sandbox(hf) as box:
        remote = await job_of(hf).options(delay_seconds=9).enqueue(1)
        await box.drain(with_delayed=True)
        assert (await hf.get(remote.id)).state is State.QUEUED


async def test_names_choose_the_jobs_and_default_to_the_remote_ones(local_url: str) -> None:
    hf = make_app(local_url)
    async with served(hf) as client:
        await job_of(hf, "local").enqueue(1)
        await job_of(hf, "pay").enqueue(2)
        assert [each["name"] for each in await take(client, max=9)] == ["pay"]
        assert [each["name"] for each in await take(client, max=9, names=["local"])] == ["local"]
        await job_of(hf).enqueue(3)
        assert await take(client, queues=["default"]) == []
        assert len(await take(client, queues=["default", "images"])) == 1
        unknown = await client.post("/v1/leases", json={"names": ["resize", "resise"]})
        assert (unknown.status_code, unknown.json()["code"]) == (422, "unknown-name")
        assert unknown.json()["errors"][0]["pointer"] == "/names/1"


async def test_a_job_under_an_old_name_is_leased_under_the_new_one(local_url: str) -> None:
    hf, old = make_app(local_url), Holdfast(local_url)
    old.job(name="shrink")(lambda image: None)
    async with served(hf) as client, old:
        await old._functions["shrink"].enqueue(1)
        assert [each["name"] for each in await take(client)] == ["resize"]


async def test_without_remote_jobs_names_are_needed(local_url: str) -> None:
    async with served(Holdfast(local_url)) as client:
        answer = await client.post("/v1/leases", json={})
        assert (answer.status_code, answer.json()["code"]) == (422, "unknown-name")


async def test_the_same_request_gets_the_same_leases(store_url: str) -> None:
    hf, second = make_app(store_url), make_app(store_url)
    async with served(hf) as client, served(second) as elsewhere:
        jobs = [await job_of(hf).enqueue(number) for number in range(3)]
        first = await take(client, max=2, request_id="a")
        for server in (client, elsewhere):
            again = await take(server, max=2, request_id="a", wait_seconds=5)
            assert [each["job_id"] for each in again] == [each["job_id"] for each in first]
        (other,) = await take(client, max=2, request_id="b")
        assert {each["job_id"] for each in (*first, other)} == {str(job.id) for job in jobs}
        assert [(await hf.get(job.id)).attempts for job in jobs] == [1, 1, 1]
        for lease in first:
            assert (await end(client, lease, status="succeeded")).status_code == 200
        assert await take(client, request_id="a") == []


async def test_what_another_server_leased_for_a_request_reaches_it_while_it_waits(
    store_url: str,
) -> None:
    hf, second = make_app(store_url), make_app(store_url)
    async with served(hf) as client, served(second) as elsewhere:
        waiting = asyncio.create_task(take(client, request_id="a", wait_seconds=50, queues=["x"]))
        await wait_until(lambda: hf.claims, "a first look")
        await job_of(hf).enqueue(1)
        (lease,) = await take(elsewhere, request_id="a")
        assert [each["lease_id"] for each in await waiting] == [lease["lease_id"]]


async def test_a_repeated_request_ends_the_one_that_still_waits(local_url: str) -> None:
    hf = make_app(local_url)
    async with served(hf) as client:
        first = asyncio.create_task(take(client, request_id="a", wait_seconds=50))
        await wait_until(lambda: hf.claims, "a first look")
        second = asyncio.create_task(take(client, request_id="a", wait_seconds=50))
        assert await first == []
        await job_of(hf).enqueue(1)
        assert len(await second) == 1


async def test_renewals_answer_ok_lost_or_cancel_requested(store_url: str) -> None:
    hf = make_app(store_url)
    async with served(hf) as client:
        jobs = [await job_of(hf).enqueue(number) for number in range(3)]
        kept, done, canceled = await take(client, max=3)
        await end(client, done, status="released")
        await hf.cancel(jobs[2].id)
        before = (await hf.get(jobs[0].id)).lease_expires_at
        assert before is not None
        unknown = {"lease_id": "x" * 54}
        statuses = await renew(client, kept, done, canceled, unknown, ttl_seconds=600)
        assert [each["status"] for each in statuses] == ["ok", "lost", "cancel_requested", "lost"]
        assert (statuses[0]["expires_in"], statuses[0]["renew_after"]) == (600, 200)
        assert "expires_in" not in statuses[1]
        after = (await hf.get(jobs[0].id)).lease_expires_at
        assert after is not None
        assert after > before + timedelta(seconds=500)


async def test_renewals_record_progress_of_leases_that_hold(store_url: str) -> None:
    hf = make_app(store_url)
    async with served(hf) as client:
        jobs = [await job_of(hf).enqueue(number) for number in range(2)]
        leases = await take(client, max=2)
        await end(client, leases[1], status="released")
        told = [{"lease_id": each["lease_id"], "progress": {"percent": 40}} for each in leases]
        await client.post("/v1/leases/renew", json={"leases": told})
        assert (await hf.get(jobs[0].id)).progress == {"percent": 40}
        assert (await hf.get(jobs[1].id)).progress is None
        told[0]["progress"] = {"text": "x" * 20_000}
        answer = await client.post("/v1/leases/renew", json={"leases": told})
        assert (answer.status_code, answer.json()["code"]) == (413, "too-large")
        assert answer.json()["errors"][0]["pointer"] == "/leases/0/progress"


OUTCOMES: list[tuple[dict[str, Any], str, float | None, int]] = [
    ({"status": "failed", "code": "BROKEN", "text": "it broke"}, "queued", 5, 1),
    ({"status": "failed", "code": "NO_SUCH_IMAGE"}, "failed", None, 1),
    ({"status": "failed", "code": "BROKEN", "permanent": True}, "failed", None, 1),
    ({"status": "failed", "code": "NO_SUCH_IMAGE", "permanent": False}, "queued", 5, 1),
    ({"status": "failed", "code": "BUSY", "retry_after_seconds": 60}, "queued", 60, 1),
    ({"status": "snoozed", "seconds": 40}, "queued", 40, 0),
    ({"status": "succeeded", "result": [1, 1.0, None]}, "succeeded", None, 1),
    ({"status": "released"}, "queued", 0, 0),
]


async def test_an_outcome_is_decided_as_for_python_and_recorded_once(store_url: str) -> None:
    hf = make_app(store_url)
    async with served(hf) as client:
        for outcome, state, delay_seconds, attempts in OUTCOMES:
            job = await job_of(hf).enqueue(1)
            (lease,) = await take(client)
            now = await hf.now()
            first = await end(client, lease, **outcome)
            assert first.status_code == 200, first.text
            assert (first.json()["state"], first.json()["attempt"]) == (state, 1)
            recorded = await hf.get(job.id)
            assert (recorded.state, recorded.attempts) == (state, attempts)
            if delay_seconds is None:
                assert first.json()["run_at"] is None
            else:
                assert 0 <= (recorded.run_at - now).total_seconds() - delay_seconds < 5
            again = await end(client, lease, **outcome)
            assert (again.status_code, again.json()) == (200, first.json())
            is_failure = outcome["status"] == "failed"
            other = {"status": "succeeded"} if is_failure else {"status": "failed", "code": "X"}
            refused = await end(client, lease, **other)
            assert (refused.status_code, refused.json()["code"]) == (409, "lease-lost")
            assert await hf.get(job.id) == recorded


async def test_another_result_is_another_outcome(local_url: str) -> None:
    hf = make_app(local_url)
    async with served(hf) as client:
        await job_of(hf).enqueue(1)
        (lease,) = await take(client)
        assert (await end(client, lease, status="succeeded", result=1)).status_code == 200
        assert (await end(client, lease, status="succeeded", result=1.0)).status_code == 409


async def test_a_stale_lease_changes_nothing(store_url: str) -> None:
    hf = make_app(store_url)
    async with served(hf) as client:
        job = await job_of(hf).enqueue(1)
        (stale,) = await take(client)
        await end(client, stale, status="released")
        (lease,) = await take(client)
        before = await hf.get(job.id)
        answer = await end(client, stale, status="succeeded", result=1)
        assert (answer.status_code, answer.json()["code"]) == (409, "lease-lost")
        assert [each["status"] for each in await renew(client, stale, lease)] == ["lost", "ok"]
        after = await hf.get(job.id)
        assert (after.state, after.fence, after.result) == (State.RUNNING, before.fence, None)
        assert (await end(client, lease, status="succeeded", result=2)).status_code == 200
        assert await hf.result(job) == 2


async def test_an_outcome_repeated_after_the_job_moved_on_gets_the_same_state(
    local_url: str,
) -> None:
    hf = make_app(local_url)
    async with served(hf) as client:
        await job_of(hf).enqueue(1)
        (lease,) = await take(client)
        first = await end(client, lease, status="released")
        assert len(await take(client)) == 1
        again = await end(client, lease, status="released")
        assert again.json() == first.json()


async def test_the_last_attempt_that_fails_leaves_the_job_dead(local_url: str) -> None:
    hf = make_app(local_url)
    async with served(hf) as client:
        job = await job_of(hf).options(max_attempts=1).enqueue(1)
        (lease,) = await take(client)
        answer = await end(client, lease, status="failed", code="BROKEN", text="it broke")
        assert answer.json()["state"] == "dead"
        dead = await hf.get(job.id)
        assert (dead.error_code, dead.error_text) == ("BROKEN", "it broke")


async def test_an_expired_job_is_canceled_instead_of_leased(local_url: str) -> None:
    hf = make_app(local_url)
    async with served(hf) as client:
        job = await job_of(hf).options(expires_in_seconds=0).enqueue(1)
        assert await take(client) == []
        ended = await hf.get(job.id)
        assert (ended.state, ended.error_code) == (State.CANCELED, "EXPIRED")


async def test_unknown_and_garbled_leases_are_not_found(local_url: str) -> None:
    async with served(make_app(local_url)) as client:
        for lease_id in ("x" * 54, "x", "é", str(uuid4()), "A" * 56, "%00"):
            answer = await client.put(f"/v1/leases/{lease_id}/outcome", json={"status": "released"})
            assert (answer.status_code, answer.json()["code"]) == (404, "not-found")


async def test_a_tenants_key_leases_its_own_jobs_only(store_url: str) -> None:
    hf = make_app(store_url)
    async with served(hf) as client:
        keys = {
            tenant: (await hf.keys.create(tenant or "all", scopes=["work"], tenant=tenant)).key
            for tenant in ("acme", "umbrella", None)
        }
        job = await hf.for_tenant("acme").enqueue(job_of(hf), 1)
        client.headers["authorization"] = f"Bearer {keys['umbrella']}"
        assert await take(client, request_id="a") == []
        client.headers["authorization"] = f"Bearer {keys['acme']}"
        (lease,) = await take(client, request_id="a")
        assert (lease["job_id"], lease["tenant"]) == (str(job.id), "acme")
        for other in ("umbrella", None):
            client.headers["authorization"] = f"Bearer {keys[other]}"
            assert await take(client, request_id="a") == []
            assert [each["status"] for each in await renew(client, lease)] == ["lost"]
            assert (await end(client, lease, status="released")).status_code == 404
        client.headers["authorization"] = f"Bearer {keys['acme']}"
        assert [each["status"] for each in await renew(client, lease)] == ["ok"]


async def test_two_keys_of_a_tenant_do_not_share_request_ids(local_url: str) -> None:
    hf = make_app(local_url)
    async with served(hf) as client:
        for name in ("a", "b"):
            key = (await hf.keys.create(name, scopes=["work"], tenant="acme")).key
            job = await hf.for_tenant("acme").enqueue(job_of(hf), 1)
            client.headers["authorization"] = f"Bearer {key}"
            (lease,) = await take(client, worker="w", request_id="same")
            assert lease["job_id"] == str(job.id)


async def test_failures_open_a_breaker_and_a_probe_over_http_closes_it(store_url: str) -> None:
    hf = make_app(store_url)
    async with served(hf) as client, seen_events() as told:
        jobs = [await job_of(hf, "pay").enqueue(number) for number in range(4)]
        down = {"status": "failed", "code": "DOWN", "text": "no answer"}
        first, second, third = await take(client, max=3)
        assert (await end(client, first, **down)).json()["state"] == "queued"
        assert told.named("breaker_opened") == []
        assert (await end(client, second, **down)).json()["state"] == "queued"
        # The breaker is open by now, so this failure costs no attempt.
        assert (await end(client, third, **down)).status_code == 200
        assert (await hf.get(jobs[2].id)).attempts == 0
        assert await take(client) == []
        (opened,) = told.named("breaker_opened")
        assert (opened.fields["breaker"], opened.fields["count"]) == ("gateway", 2)
        assert opened.message.endswith("attempt: DOWN: no answer")
        (breaker,) = await hf.breakers.list()
        assert breaker.is_open
        await require(await hf._store(), Breakers, "park jobs").park(100)
        await execute(store_url, "UPDATE breakers SET next_probe_at = opened_at")
        (probe,) = await take(client, wait_seconds=50)
        assert (await end(client, probe, status="succeeded", result=1)).status_code == 200
        (breaker,) = await hf.breakers.list()
        assert not breaker.is_open
        assert len(told.named("breaker_closed")) == 1


async def test_suspects_are_leased_too(local_url: str) -> None:
    hf = make_app(local_url)
    async with served(hf) as client:
        job = await job_of(hf).options(max_attempts=2).enqueue(1)
        store = await hf._store()
        assert await store.claim_by_id(job.id, "doomed", 30.0) is not None
        (reclaimed,) = await store.reclaim(10, "doomed", "died")
        assert reclaimed.suspect
        assert [each["job_id"] for each in await take(client, wait_seconds=50)] == [str(job.id)]
        await let_leases_run_out(local_url)
        await store.reclaim(10)
        assert (await hf.get(job.id)).state is State.DEAD
