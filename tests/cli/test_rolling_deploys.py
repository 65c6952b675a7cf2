"""Two versions of an application, each in its own process, on one database."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.promises.stage import both_stores
from tests.support.command import run_command
from tests.support.processes import Process, wait_until

pytestmark = pytest.mark.heavy

OLD = """
import os
from holdfast import Holdfast

hf = Holdfast(os.environ["HOLDFAST_DATABASE_URL"], app_version="1.9")

@hf.job(queue="mail")
async def send_mail(to: str) -> str:
    return f"1.9 mailed {to}"
"""
NEW = """
import os
from holdfast import Holdfast

hf = Holdfast(os.environ["HOLDFAST_DATABASE_URL"], app_version="2.0")

@hf.job(queue="mail")
async def send_mail(to: str, subject: str = "Hello") -> str:
    return f"2.0 mailed {to}: {subject}"

@hf.job(queue="mail")
async def send_sms(to: str) -> str:
    return f"2.0 texted {to}"
"""


class Deploy:
    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self.workers: list[Process] = []
        for version, code in {"old": OLD, "new": NEW}.items():
            (folder / f"{version}.py").write_text(code)

    def start(self, version: str) -> Process:
        command = ["-m", "holdfast.cli.main", "worker", f"{version}:hf", "--log-format=json"]
        settings = {"HOLDFAST_DATABASE_URL": self.url, "HOLDFAST_POLL_SECONDS": "0.1"}
        self.workers.append(Process(version, command, self.folder, settings))
        return self.workers[-1]

    def enqueue(self, version: str, name: str, *arguments: str) -> str:
        words = [word for argument in arguments for word in ("--set", argument)]
        ran = self._run("jobs", "enqueue", name, *words, "--app", f"{version}:hf")
        assert ran.returncode == 0, ran.stderr
        return str(ran.stdout.strip())

    def show(self, job_id: str) -> dict[str, Any]:
        shown: dict[str, Any] = json.loads(self._run("jobs", "show", job_id, "--json").stdout)
        return shown

    def retry(self, job_id: str) -> None:
        """Make it due now, if it still waits."""
        self._run("jobs", "retry", job_id)

    def doctor(self) -> dict[str, dict[str, Any]]:
        """The worst finding of each check."""
        report = json.loads(self._run("doctor", "new:hf", "--json").stdout)
        return {each["code"]: each for each in reversed(report["findings"])}

    def _run(self, *words: str) -> Any:
        return run_command(*words, folder=self.folder, url=self.url)


@pytest.fixture
def deploy(store_url: str, tmp_path: Path) -> Iterator[Deploy]:
    made = Deploy(store_url, tmp_path)
    yield made
    for worker in made.workers:
        worker.kill()


@both_stores
async def test_new_jobs_and_new_arguments_go_to_new_workers_and_nothing_is_lost(
    deploy: Deploy,
) -> None:
    old = deploy.start("old")
    started = await old.logs("worker_started")
    assert started["app_version"] == "1.9"
    plain = deploy.enqueue("old", "send_mail", "to=ada")
    mail = deploy.enqueue("new", "send_mail", "to=ada", "subject=order")
    sms = deploy.enqueue("new", "send_sms", "to=ada")

    handed_back = await old.logs("handed_back")
    assert handed_back["job_id"] == mail
    found = deploy.doctor()
    assert found["versions"]["severity"] == "ok"
    assert found["names"]["severity"] == "critical"
    assert "knows the job name send_sms" in found["names"]["sentence"]
    assert found["arguments"]["severity"] == "warning"
    assert "send_mail(to) has no argument 'subject'" in found["arguments"]["sentence"]

    new = deploy.start("new")
    await wait_until(lambda: new.events("settle"), lambda: f"settled: {new.text}")
    found = deploy.doctor()
    assert [each["app"] for each in found["versions"]["facts"]["versions"]] == ["1.9", "2.0"]
    assert " have run side by side for " in found["versions"]["sentence"]
    assert found["names"]["severity"] == "ok"
    old.signal(signal.SIGTERM)
    assert await old.ended() == 0
    assert deploy.doctor()["versions"]["severity"] == "ok"

    deploy.retry(mail)
    await wait_until(
        lambda: deploy.show(mail)["state"] == "succeeded", lambda: f"succeeded: {new.text}"
    )
    assert [deploy.show(each)["result"] for each in (plain, mail, sms)] == [
        "1.9 mailed ada",
        "2.0 mailed ada: order",
        "2.0 texted ada",
    ]
    assert deploy.show(mail)["attempts"] == 1  # handing it back cost none
