"""`holdfast messages`: look at messages, and mend what fits its job no longer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any
from uuid import UUID, uuid4

import pytest
from azure.servicebus import ServiceBusReceiver

from holdfast import State
from tests.support.command import run_command
from tests.support.convoys import QUEUE, App, Convoys
from tests.support.running import working
from tests.support.servicebus import StartBus, receive_one

pytestmark = pytest.mark.heavy


class Desk:
    """A bus, a database with jobs in several states, and the command."""

    def __init__(self, convoys: Convoys, app: App, folder: Path) -> None:
        self.convoys = convoys
        self.app = app
        self._folder = folder

    async def run(self, *words: str, messengers: str | None = None) -> CompletedProcess[str]:
        return await asyncio.to_thread(
            run_command,
            "messages",
            *words,
            folder=self._folder,
            url=self.convoys.url,
            environment={
                "HOLDFAST_MESSENGERS": self.convoys.address if messengers is None else messengers
            },
        )

    async def lines(self, *words: str) -> list[dict[str, Any]]:
        done = await self.run(*words, "--json")
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def kill_message(self, body: bytes | UUID) -> None:
        """Put a message among the dead letters."""

        def bury(receiver: ServiceBusReceiver) -> None:
            receiver.dead_letter_message(
                receive_one(receiver), reason="Poison", error_description="too often"
            )

        if isinstance(body, UUID):
            self.convoys.announce(body)
        else:
            self.convoys.send(body)
        self.convoys.receiving(bury)

    async def ended(self) -> UUID:
        job = await self.app.quick.enqueue(1)
        await self.app.hf.run_due()
        assert (await self.app.hf.get(job.id)).state is State.SUCCEEDED
        return job.id

    @property
    def letters(self) -> list[str | None]:
        return [each.reason for each in self.convoys.bus.dead_letters(QUEUE)]


@pytest.fixture
async def desk(local_url: str, servicebus: StartBus, tmp_path: Path) -> AsyncIterator[Desk]:
    convoys = Convoys(local_url, servicebus)
    app = convoys.app(escorted=False)
    async with app.hf:
        yield Desk(convoys, app, tmp_path)


async def test_peek_shows_each_message_beside_its_job(desk: Desk) -> None:
    ended, waiting = await desk.ended(), await desk.app.slow.enqueue(1)
    desk.kill_message(ended)
    desk.kill_message(b"garbage")
    desk.kill_message(uuid4())
    desk.convoys.announce(waiting.id)
    before = desk.convoys.messages, desk.convoys.bus.dead_letters(QUEUE)

    found = await desk.lines("peek")
    assert [(each["box"], each["job_state"]) for each in found] == [
        ("dead", "succeeded"),
        ("dead", None),
        ("dead", None),
        ("queue", "queued"),
    ]
    assert [each["job_id"] for each in found][::3] == [str(ended), str(waiting.id)]
    assert found[0]["reason"] == "Poison"
    assert found[0]["description"] == "too often"
    assert [each["box"] for each in await desk.lines("peek", "--dead")] == ["dead"] * 3
    assert [each["box"] for each in await desk.lines("peek", "--queue")] == ["queue"]
    assert len(await desk.lines("peek", "--dead", "--limit=2")) == 2

    table = (await desk.run("peek")).stdout
    for word in ("succeeded", "names no job", "unknown", "queued", "Poison: too often", str(ended)):
        assert word in table
    assert "no-secret" not in table
    assert (desk.convoys.messages, desk.convoys.bus.dead_letters(QUEUE)) == before


async def test_replay_sends_what_still_waits_and_leaves_the_rest_with_a_reason(desk: Desk) -> None:
    ended, waiting = await desk.ended(), await desk.app.slow.enqueue(1)
    for body in (waiting.id, ended, b"garbage"):
        desk.kill_message(body)
    numbers = [str(each["number"]) for each in await desk.lines("peek", "--dead")]

    dry = await desk.lines("replay", "--all", "--dry-run")
    assert [each["sent"] for each in dry] == [True, False, False]
    assert len(desk.letters) == 3

    (sent,) = await desk.lines("replay", numbers[0])
    assert (sent["sent"], sent["message"]["job_id"]) == (True, str(waiting.id))
    (message,) = desk.convoys.messages
    assert json.loads(message.body) == {"job_id": str(waiting.id)}
    left = await desk.lines("replay", "--all")
    assert [each["because"] for each in left] == [
        "its job has ended (succeeded)",
        "it names no job",
    ]
    assert len(desk.convoys.messages) == 1

    missing = await desk.run("replay", numbers[0])
    assert (missing.returncode, missing.stderr) == (1, f"holdfast: no dead letter {numbers[0]}\n")
    unclear = await desk.run("replay")
    assert unclear.returncode == 2
    assert "or --all" in unclear.stderr


async def test_a_replayed_letter_runs_its_job_once(desk: Desk) -> None:
    waiting = await desk.app.quick.enqueue(1)
    for _ in range(3):
        desk.kill_message(waiting.id)
    assert [each["sent"] for each in await desk.lines("replay", "--all")] == [True] * 3
    worker = desk.convoys.app()
    async with worker.hf, working(worker.hf):
        await desk.convoys.does(1)
        await desk.convoys.empties()
        assert (await worker.hf.get(waiting.id)).attempts == 1


async def test_repair_makes_messages_fit_jobs_and_repeating_it_does_nothing(desk: Desk) -> None:
    ended = await desk.ended()
    announced, silent = await desk.app.slow.enqueue(1), await desk.app.slow.enqueue(2)
    later = await desk.app.slow.options(delay_seconds=3600).enqueue(3)
    for body in (ended, uuid4(), b"garbage", announced.id):
        desk.kill_message(body)
    desk.convoys.announce(announced.id)

    (dry,) = await desk.lines("repair", "--dry-run")
    assert len(dry["removed"]) == 2
    assert dry["announced"] == [str(silent.id)]
    assert len(desk.letters) == 4
    assert len(desk.convoys.messages) == 1

    done = await desk.run("repair")
    assert done.stdout == "removed 2 dead letters, announced 1 due job\n"
    assert len(desk.letters) == 2  # one names no job, and one's job still waits
    named = [json.loads(each.body)["job_id"] for each in desk.convoys.messages]
    assert named == [str(announced.id), str(silent.id)]
    assert str(later.id) not in named

    again = await desk.run("repair")
    assert again.stdout == "removed 0 dead letters, announced 0 due jobs\n"
    assert len(desk.convoys.messages) == 2


@pytest.mark.parametrize("words", [("peek",), ("repair",), ("replay", "--all")])
async def test_a_messenger_without_dead_letters_is_refused(
    desk: Desk, words: tuple[str, ...]
) -> None:
    for messengers, have in (("", "none"), ("amqp://guest:guest@localhost/", "rabbitmq")):
        refused = await desk.run(*words, messengers=messengers)
        assert refused.returncode == 1
        assert f"keeps messages (it has: {have})" in refused.stderr


async def test_a_broker_that_is_away_is_an_error_of_one_line(desk: Desk) -> None:
    await asyncio.to_thread(desk.convoys.bus.stop)
    away = await desk.run("peek")
    assert away.returncode == 1
    assert len(away.stderr.splitlines()) == 1
    assert "Traceback" not in away.stderr
    assert "no-secret" not in away.stderr
    await asyncio.to_thread(desk.convoys.bus.start)
