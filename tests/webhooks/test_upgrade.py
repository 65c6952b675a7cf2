"""A database with the webhooks' tables of an older version: it loses nothing, and goes on."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from importlib.resources import files
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.webhooks.limits import GUARD_SECONDS, TIMEOUT_SECONDS
from holdfast.webhooks.policy import STANDARD, Policy
from holdfast_systems.passport import BPC
from tests.support.running import QUICK, execute
from tests.webhooks.receiving import Receiver
from tests.webhooks.shop import Shop, both_stores, make_policy, on_postgres
from tests.webhooks.test_rules_of_the_database import REFUSED

pytestmark = pytest.mark.heavy

IDS = {name: f"00000000-0000-7000-8000-00000000000{n}" for n, name in enumerate("sevkal", 1)}
LOGGED = (
    "attempt_id, saga_id, duration_ms, response_status, response_headers, response_body,"
    " error_code, error_text, logged_at"
)
FILL = """
INSERT INTO webhook_subscriptions (id, tenant, url, event_types, preset, created_at)
VALUES ('{s}', NULL, '{url}', '[]', '{preset}', '2026-01-01T00:00:00.000000Z');
INSERT INTO webhook_secrets VALUES
('{k}', '{s}', 'whsec_YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4', '2026-01-01T00:00:00.000000Z');
INSERT INTO webhook_events VALUES
('{e}', NULL, 'order.paid', NULL, NULL, '2026-01-01T00:00:00.000000Z', '{{"order":1}}',
'2026-01-01T00:00:00.000000Z');
INSERT INTO webhook_sagas (id, event_id, subscription_id, next_attempt_at, created_at)
VALUES ('{a}', '{e}', '{s}', '2026-01-01T00:00:00.000000Z', '2026-01-01T00:00:00.000000Z');
INSERT INTO webhook_attempts (id, saga_id, attempt_no, attempt_at)
VALUES ('{l}', '{a}', 1, '2026-01-01T00:00:00.000000Z');
UPDATE webhook_attempts SET status = 'Failed', response_status = 503, error_code = 'HTTP_503',
ended_at = '2026-01-01T00:00:01.000000Z';
INSERT INTO webhook_attempt_log VALUES
('{l}', '{a}', 7, 503, '{{"X-Odd":"1"}}', x'00ff', 'HTTP_503', 'text',
'2026-01-01T00:00:01.000000Z');
"""


def steps_of(dialect: str) -> list[str]:
    folder = files("holdfast.webhooks").joinpath("sql").joinpath(dialect).joinpath("migrations")
    names = sorted(file.name for file in folder.iterdir() if file.name.endswith(".sql"))
    return [folder.joinpath(name).read_text(encoding="utf-8") for name in names]


def step_1(dialect: str) -> str:
    return steps_of(dialect)[0]


async def run_script(url: str, script: str) -> None:
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file, file:
            file.executescript(script)
    else:
        await execute(url, script)


async def of_version_1(path: Path, url: str, preset: str = "standard") -> list[tuple[object, ...]]:
    """Make a file whose webhooks are of version 1, with a row in each table; answer its log."""
    hf = Holdfast(f"sqlite:///{path}", **QUICK)
    await hf.migrate()
    await hf.close()
    with closing(sqlite3.connect(path)) as file, file:
        file.executescript(step_1("sqlite"))
        file.execute("INSERT INTO application_steps VALUES ('webhooks', 1, 'webhooks', 0)")
        file.executescript(FILL.format(url=url, preset=preset, **IDS))
        return file.execute(f"SELECT {LOGGED} FROM webhook_attempt_log").fetchall()


async def test_the_attempt_log_of_version_1_is_kept(tmp_path: Path, receiver: Receiver) -> None:
    path = tmp_path / "shop.db"
    before = await of_version_1(path, receiver.url)
    async with Shop.open(f"sqlite:///{path}") as shop:
        (saga,) = await shop.fetch("SELECT id FROM webhook_sagas")
        assert str(saga["id"]) == IDS["a"]
    with closing(sqlite3.connect(path)) as file:
        kept = file.execute(f"SELECT {LOGGED}, tenant FROM webhook_attempt_log").fetchall()
        assert kept == [(*row, "default") for row in before]
        assert file.execute("PRAGMA foreign_key_check").fetchall() == []
        assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


async def test_subscriptions_of_version_1_get_the_default_policy(tmp_path: Path) -> None:
    """Those in the clear were made with `https_only=False`, and stay so."""
    path = tmp_path / "shop.db"
    await of_version_1(path, "http://example.org/")
    async with Shop.open(f"sqlite:///{path}") as shop:
        (row,) = await shop.fetch("SELECT policy FROM webhook_subscriptions")
    defaults = Policy(
        https_only=False,
        allow_private_addresses=False,
        retry=STANDARD,
        timeout_seconds=TIMEOUT_SECONDS,
        guard_seconds=GUARD_SECONDS,
    )
    assert Policy.decode(row["policy"]) == defaults


async def test_what_the_code_knew_of_a_preset_is_in_the_policy(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    await of_version_1(path, "https://example.org/", "bpc")
    async with Shop.open(f"sqlite:///{path}") as shop:
        (row,) = await shop.fetch("SELECT preset, policy FROM webhook_subscriptions")
        policy = Policy.decode(row["policy"])
        assert (row["preset"], policy) == ("bpc", policy.under(BPC))
        (subscription,) = await shop.webhooks.subscriptions()
        assert str(subscription.id) == IDS["s"]


ENDED = """
INSERT INTO webhook_dead_letters
    (id, tenant, saga_id, event_id, subscription_id, final_error_code, failed_at, payload_snapshot)
VALUES ('{v}', NULL, '{a}', '{e}', '{s}', 'HTTP_503', '2026-01-01T00:00:01.000000Z', '{{}}');
UPDATE webhook_sagas SET status = 'InFlight', next_attempt_at = NULL;
UPDATE webhook_sagas SET status = 'DeadLettered', ended_at = '2026-01-01T00:00:01.000000Z';
"""


@both_stores
async def test_what_had_no_tenant_belongs_to_default_and_stays_as_it_was(store_url: str) -> None:
    """Even what has ended, which nobody may change."""
    if store_url.startswith("sqlite"):
        path = Path(store_url.removeprefix("sqlite:///"))
        await of_version_1(path, "https://example.org/")
        with closing(sqlite3.connect(path)) as file, file:
            file.executescript(ENDED.format(**IDS))
    else:
        await execute(store_url, step_1("postgres"))
        await execute(
            store_url, "INSERT INTO application_steps VALUES ('webhooks', 1, 'webhooks', now())"
        )
        filled = FILL.replace("x'00ff'", "'x'").format(
            url="https://example.org/", preset="standard", **IDS
        )
        await execute(store_url, filled + ENDED.format(**IDS))
    async with Shop.open(store_url) as shop:
        for table in ("subscriptions", "secrets", "events", "sagas", "dead_letters"):
            (row,) = await shop.fetch(f"SELECT tenant FROM holdfast.webhook_{table}")
            assert row["tenant"] == "default"
        (letter,) = await shop.webhooks.dead_letters()
        (subscription,) = await shop.webhooks.subscriptions()
        assert (str(letter.id), str(subscription.id)) == (IDS["v"], IDS["s"])
        for change in (
            "UPDATE holdfast.webhook_events SET payload = '{}'",
            "UPDATE holdfast.webhook_dead_letters SET payload_snapshot = '{}'",
            "UPDATE holdfast.webhook_sagas SET attempt_count = 7",
        ):
            with pytest.raises(REFUSED):
                await shop.fetch(change)


# As left by the version before the orchestrator was a sweep: two sagas wait, one is in flight and
# was reported, one is in flight and was not. The queue was paused.
IN_FLIGHT = """
INSERT INTO webhook_sagas (id, tenant, event_id, subscription_id, next_attempt_at, requeued_from,
    created_at)
VALUES
    ('{n}1', 'default', '{e}', '{s}', '{at}', '{n}1', '{at}'),
    ('{n}2', 'default', '{e}', '{s}', '{at}', '{n}2', '{at}'),
    ('{n}3', 'default', '{e}', '{s}', '{at}', '{n}3', '{at}');
UPDATE webhook_sagas SET status = 'InFlight', next_attempt_at = NULL, attempt_count = 1
WHERE id > '{n}1';
INSERT INTO webhook_attempts (id, saga_id, attempt_no, guard_id, attempt_at)
VALUES ('{n}2', '{n}2', 1, '{n}7', '{at}'), ('{n}3', '{n}3', 1, '{n}7', '{at}');
UPDATE webhook_attempts SET status = 'Completed', response_status = 200, ended_at = '{at}'
WHERE id = '{n}2';
INSERT INTO jobs (id, name, queue, priority, arguments, max_attempts, run_at, created_at)
VALUES
    ('{n}3', 'webhooks.deliver', 'webhooks', 0,
     '{{"saga_id": "{n}3", "attempt_no": 1}}', 4, {now}, {now}),
    ('{n}7', 'webhooks.orchestrate', 'webhooks', 0,
     '{{"saga_id": "{n}1", "attempt_no": 1}}', 1000, {now}, {now});
INSERT INTO queues (name, paused_at, paused_by) VALUES ('webhooks', {now}, 'ana');
"""


@both_stores
async def test_sagas_of_the_version_before_the_sweep_go_on(
    store_url: str, receiver: Receiver
) -> None:
    is_sqlite = store_url.startswith("sqlite")
    dialect, steps = ("sqlite", 6) if is_sqlite else ("postgres", 5)
    if is_sqlite:
        hf = Holdfast(store_url, **QUICK)
        await hf.migrate()
        await hf.close()
    for number, step in enumerate(steps_of(dialect)[:steps], 1):
        await run_script(store_url, step)
        await run_script(
            store_url,
            f"INSERT INTO application_steps (application, version, name, applied_at)"
            f" VALUES ('webhooks', {number}, 'step', {0 if is_sqlite else 'now()'})",
        )
        if number == 1:
            filled = FILL.format(url=receiver.url, preset="standard", **IDS)
            await run_script(store_url, filled if is_sqlite else filled.replace("x'00ff'", "'x'"))
    names = {"n": "00000000-0000-7000-8000-0000000000a", "at": "2026-01-01T00:00:00.000000Z"}
    now = "0" if is_sqlite else "now()"
    await run_script(store_url, IN_FLIGHT.format(**IDS, **names, now=now))
    await run_script(
        store_url, f"UPDATE webhook_subscriptions SET policy = '{make_policy().encode()}'"
    )
    async with Shop.open(store_url) as shop:
        paused = {each.name for each in await shop.hf.queues.list() if each.paused}
        assert paused == {"webhooks", "webhooks.delivery", "webhooks.orchestration"}
        await shop.hf.run_due()
        assert receiver.requests == []
        assert {job.name for job in await shop.jobs()} == {"webhooks.deliver"}
        for queue in ("webhooks.delivery", "webhooks.orchestration"):
            await shop.hf.queues.resume(queue)
        await shop.hf.run_due()
        rows = await shop.fetch("SELECT id, status, attempt_count FROM holdfast.webhook_sagas")
        ends = {str(row["id"])[-2:]: (row["status"], row["attempt_count"]) for row in rows}
        assert ends.pop("05") == ("Delivered", 2)  # had a failed attempt
        assert ends == dict.fromkeys(("a1", "a2", "a3"), ("Delivered", 1))
        assert len(receiver.requests) == 3
        assert await shop.fetch("SELECT 1 FROM holdfast.webhook_attempts WHERE NOT judged") == []


@on_postgres
async def test_subscriptions_of_version_1_get_the_default_policy_on_postgres(
    store_url: str,
) -> None:
    await execute(store_url, step_1("postgres"))
    await execute(
        store_url, "INSERT INTO application_steps VALUES ('webhooks', 1, 'webhooks', now())"
    )
    for letter, url, preset in (
        ("s", "HTTP://example.org/", "standard"),
        ("e", "https://a.org/", "standard"),
        ("v", "https://b.org/", "bpc"),
    ):
        await execute(
            store_url,
            "INSERT INTO webhook_subscriptions (id, url, event_types, preset, created_at)"
            f" VALUES ('{IDS[letter]}', '{url}', '[]', '{preset}', now())",
        )
    async with Shop.open(store_url) as shop:
        rows = await shop.fetch("SELECT policy FROM holdfast.webhook_subscriptions ORDER BY id")
    policies = [Policy.decode(row["policy"]) for row in rows]
    assert [policy.https_only for policy in policies] == [False, True, True]
    assert {policy.allow_private_addresses for policy in policies} == {False}
    assert policies[0].retry == policies[1].retry == STANDARD
    assert policies[2] == policies[1].under(BPC)
