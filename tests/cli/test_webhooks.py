"""`holdfast webhooks`, run as people and scripts run it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, Retry
from holdfast.webhooks import Webhooks
from tests.promises.stage import both_stores
from tests.support.command import run_command

pytestmark = pytest.mark.heavy

APP = """
from holdfast import Holdfast
from holdfast.webhooks import Webhooks

hf = Holdfast()
plain = Holdfast()
webhooks = Webhooks(hf, https_only=False, allow_private_addresses=True)
"""
ONCE = Retry.none()
UNKNOWN = "01972d5c-8a30-7c4e-b1f0-3d2a5b6c7d8e"
NOWHERE = "http://127.0.0.1:9/hooks"
Run = Callable[..., tuple[str, str]]


@pytest.fixture
async def run(store_url: str, tmp_path: Path) -> Run:
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    hf = Holdfast(store_url)
    Webhooks(hf)
    await hf.migrate()
    await hf.close()

    def run(*words: str, code: int = 0) -> tuple[str, str]:
        done = run_command(*("webhooks", *words, "--app", "app:hf"), folder=tmp_path, url=store_url)
        assert done.returncode == code, done.stderr
        return done.stdout, done.stderr

    return run


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@both_stores
def test_a_subscription_from_its_first_day_to_its_last(run: Run) -> None:
    secret, said = run("subscriptions", "add", NOWHERE, "--type", "order.paid", "--tenant", "acme")
    assert secret.startswith("whsec_")
    assert "can't be shown again" in said
    assert secret.strip() not in said
    (row,) = lines(run("subscriptions", "--tenant", "acme", "--json")[0])
    assert (row["url"], row["event_types"], "secret" in row) == (NOWHERE, ["order.paid"], False)
    assert run("subscriptions", "list") == ("", "no subscriptions\n")
    shown, _ = run("subscriptions", "list", "--tenant", "acme")
    assert row["id"] in shown
    assert "enabled" in shown
    (changed,) = lines(run("subscriptions", "change", row["id"], "--all-types", "--json")[0])
    assert changed["event_types"] == []
    (renewed,) = lines(run("subscriptions", "rotate", row["id"], "--keep", "7d", "--json")[0])
    assert renewed["secret"] not in (secret.strip(), None)
    started, _ = run("subscriptions", "test", row["id"])
    assert started.startswith("started saga ")
    assert "is disabled" in run("subscriptions", "disable", row["id"], "--because", "moved")[0]
    assert "disabled" in run("subscriptions", "--tenant", "acme")[0]
    _, refused = run("subscriptions", "test", row["id"], code=1)
    assert "enable it first" in refused
    assert "is enabled" in run("subscriptions", "enable", row["id"])[0]
    assert "is deleted" in run("subscriptions", "delete", row["id"])[0]
    _, gone = run("subscriptions", "enable", row["id"], code=1)
    assert f"subscription {row['id']} does not exist" in gone


@both_stores
def test_events_sagas_and_replays(run: Run, store_url: str, tmp_path: Path) -> None:
    run("subscriptions", "add", NOWHERE)
    (event,) = lines(run("events", "send", "order.paid", '{"order": 1}', "--json")[0])
    said, _ = run("events", "send", "order.paid", '{"order": 1}', "--id", event["id"])
    assert said == f"published event {event['id']}, with 1 saga\n"
    (saga,) = lines(run("sagas", "list", "--status", "Pending", "--json")[0])
    assert saga["event_id"] == event["id"]
    assert saga["id"] in run("sagas")[0]
    (shown,) = lines(run("sagas", "show", saga["id"], "--json")[0])
    assert (shown["id"], shown["attempts"]) == (saga["id"], [])
    assert "is canceled" in run("sagas", "cancel", saga["id"], "--by", "ann")[0]
    assert "Canceled" in run("sagas", "show", saga["id"])[0]
    counted, _ = run("replay", "--from", "1h", "--dry-run")
    assert counted == "would replay 1 events, 1 sagas; nothing was changed\n"
    (row,) = lines(run("replay", "--from", "1h", "--dry-run", "--json")[0])
    assert row == {"events": 1, "sagas": 1, "is_all": True}
    (replay,) = lines(run("replay", "--from", "1h", "--json")[0])
    assert (replay["sagas"], replay["ended_at"]) == (0, None)
    entries = run_command("audit", "list", "--json", folder=tmp_path, url=store_url).stdout
    told = {entry["action"]: entry["actor"] for entry in lines(entries)}
    assert told["saga.cancel"] == "ann"
    assert told.keys() >= {"subscription.create", "webhooks.replay"}


@both_stores
async def test_a_dead_letter_is_shown_and_requeued_once(run: Run, store_url: str) -> None:
    hf = Holdfast(store_url)
    webhooks = Webhooks(hf, https_only=False, allow_private_addresses=True, retry=ONCE)
    async with hf:
        await webhooks.subscribe(NOWHERE)
        await webhooks.publish("order.paid", {"order": 1001})
        await hf.run_due()
    (letter,) = lines(run("dead", "--json")[0])
    assert letter["final_error_code"] == "NETWORK_ERROR"
    shown, _ = run("dead", "show", letter["id"])
    assert '{"order":1001}' in shown.replace(" ", "")
    assert "could not connect to the receiver" in shown
    sagas = [lines(run("dead", "requeue", letter["id"], "--json")[0])[0] for _ in range(2)]
    assert sagas[0] == sagas[1]
    assert sagas[0]["requeued_from"] == letter["id"]


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_what_is_wrong_is_said_in_one_line(run: Run, store_url: str, tmp_path: Path) -> None:
    for words, code, text in (
        (("sagas", "show", "7"), 2, "'7' is not the ID of a saga"),
        (("events", "send", "a", "[]"), 2, "must be a JSON object"),
        (("events", "send", "a b", "{}"), 1, "an event type must have"),
        (("subscriptions", "add", "ftp://example.org"), 1, "the URL must be https or http"),
        (("subscriptions", "change", UNKNOWN), 2, "nothing to change"),
        (("subscriptions", "change", UNKNOWN, "--type", "a", "--all-types"), 2, "not both"),
        (("dead", "requeue", UNKNOWN), 1, "does not exist"),
        (("replay", "--from", "1h", "--to", "2h"), 1, "since must be before until"),
    ):
        _, said = run(*words, code=code)
        assert text in said
        assert "Traceback" not in said
    done = run_command("webhooks", "sagas", "--app", "app:plain", folder=tmp_path, url=store_url)
    assert "has no webhooks" in done.stderr
    done = run_command("webhooks", "sagas", "--database", store_url, folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "no sagas\n")
