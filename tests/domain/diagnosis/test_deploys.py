"""What doctor says while workers of several versions run side by side."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import Check, Finding, Severity, WorkerStatus
from holdfast.domain.diagnosis.deploys import DEPLOY_SECONDS_MAX
from holdfast.domain.diagnosis.vitals import Due, HandedBack, Stuck, Workload
from holdfast.domain.diagnosis.work import judge_work

NOW = datetime(2026, 11, 18, 3, tzinfo=UTC)


def worker(
    host: str,
    app_version: str = "",
    *,
    version: str = "0.1.0",
    names: tuple[str, ...] = ("send_mail",),
    up_seconds: float = 60.0,
    **others: Any,
) -> WorkerStatus:
    made = {
        "id": f"{host}:7:a",
        "pid": 7,
        "queues": None,
        "concurrency": 20,
        "running": 0,
        "full_queues": (),
        "suspects_only": False,
        "lease_seconds": 30.0,
        "started_at": NOW - timedelta(seconds=up_seconds),
        "seen_at": NOW,
        "unseen_seconds": 0.0,
        "lost": False,
    }
    return WorkerStatus(
        host=host, app_version=app_version, version=version, names=names, **{**made, **others}
    )


def judge(
    *workers: WorkerStatus, due: Sequence[Due] = (), handed_back: Sequence[HandedBack] = ()
) -> dict[Check, list[Finding]]:
    load = Workload(
        now=NOW,
        workers=workers,
        due=due,
        handed_back=handed_back,
        stuck=Stuck(jobs=0, oldest_seconds=0.0, workers=()),
        paused=(),
        capped=(),
        breakers=(),
    )
    found: dict[Check, list[Finding]] = {}
    for finding in judge_work(load):
        found.setdefault(finding.code, []).append(finding)
    return found


def versions(*workers: WorkerStatus, **load: Any) -> Finding:
    (finding,) = judge(*workers, **load)[Check.VERSIONS]
    return finding


OLD = worker("web1", "1.9", up_seconds=86400)
NEW = worker("web2", "2.0", up_seconds=600)


def test_workers_of_one_version_are_fine() -> None:
    alike = versions(OLD, worker("web3", "1.9"))
    assert alike.severity is Severity.OK
    assert alike.sentence == "all workers run version 1.9 on Holdfast 0.1.0"
    assert versions(worker("web1")).sentence == "all workers run Holdfast 0.1.0"


def test_a_deploy_in_progress_is_told_with_hosts_versions_and_duration() -> None:
    found = versions(OLD, NEW, worker("web3", "2.0", up_seconds=30))
    assert found.severity is Severity.INFO
    assert found.sentence == (
        "workers of 2 versions have run side by side for 10 min:"
        " 1.9 (1 worker on web1); 2.0 (2 workers on web2, web3)"
    )
    assert found.advice == "no action needed while a deploy is in progress; to watch it"
    assert [each["hosts"] for each in found.facts["versions"]] == [["web1"], ["web2", "web3"]]


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        (("", "0.1.0"), ("", "0.2.0"), ["Holdfast 0.1.0", "Holdfast 0.2.0"]),
        (("", "0.1.0"), ("2.0", "0.1.0"), ["no app_version", "2.0"]),
        (
            ("1.9", "0.1.0"),
            ("2.0", "0.2.0"),
            ["version 1.9 on Holdfast 0.1.0", "version 2.0 on Holdfast 0.2.0"],
        ),
    ],
)
def test_versions_are_named_by_what_they_differ_in(
    old: tuple[str, str], new: tuple[str, str], named: list[str]
) -> None:
    first = worker("web1", old[0], version=old[1], up_seconds=90)
    found = versions(first, worker("web2", new[0], version=new[1]))
    told = [each.partition(" (1 worker")[0] for each in found.sentence.split(": ")[1].split("; ")]
    assert told == named


@pytest.mark.parametrize(
    ("seconds", "severity"),
    [(DEPLOY_SECONDS_MAX, Severity.INFO), (DEPLOY_SECONDS_MAX + 1, Severity.WARNING)],
)
def test_a_deploy_that_lasts_too_long_is_a_warning(seconds: float, severity: Severity) -> None:
    found = versions(OLD, worker("web2", "2.0", up_seconds=seconds), worker("web3", "2.0"))
    assert found.severity is severity
    assert ("finish the deploy" in (found.advice or "")) is (severity is Severity.WARNING)


def test_waiting_jobs_that_only_some_workers_know_are_a_warning() -> None:
    new = worker("web2", "2.0", names=("send_mail", "send_sms"))
    due = [
        Due(queue="mail", name=name, jobs=2, oldest_seconds=3.0)
        for name in ("send_mail", "send_sms")
    ]
    found = versions(OLD, new, due=due)
    assert found.severity is Severity.WARNING
    assert found.sentence.endswith(". Jobs wait that only some of them know: send_sms")
    assert versions(OLD, new, due=due[:1]).severity is Severity.INFO


def test_a_worker_of_another_queue_need_not_know_a_waiting_job() -> None:
    new = worker("web2", "2.0", names=("send_mail", "send_sms"))
    due = [Due(queue="mail", name="send_sms", jobs=2, oldest_seconds=3.0)]
    elsewhere = worker("web1", "1.9", queues={"images": None}, up_seconds=600)
    assert versions(elsewhere, new, due=due).severity is Severity.INFO


def test_applications_that_have_no_job_in_common_may_have_any_versions() -> None:
    shop, mailer = worker("web1", "1.9", up_seconds=86400), worker("web2", "7", names=("bill",))
    found = versions(shop, mailer)
    assert (found.severity, found.sentence) == (
        Severity.OK,
        "no two workers run different versions of one application",
    )
    both = worker("web3", "7", names=("bill", "send_mail"))
    assert versions(shop, mailer, both).severity is Severity.INFO


def test_jobs_that_were_handed_back_are_told_and_make_a_deploy_a_warning() -> None:
    waiting = HandedBack(
        queue="mail",
        name="send_mail",
        jobs=3,
        releases=4,
        error_text="send_mail(to) has no argument 'subject'",
    )
    found = judge(OLD, NEW, handed_back=[waiting])
    (deploy,) = found[Check.VERSIONS]
    assert deploy.severity is Severity.WARNING
    assert deploy.sentence.endswith(". 3 jobs wait after being handed back")
    (arguments,) = found[Check.ARGUMENTS]
    assert arguments.severity is Severity.WARNING
    assert arguments.sentence == (
        "3 jobs named send_mail in queue mail wait for a worker that can run them:"
        " send_mail(to) has no argument 'subject'. Released 4 of at most 100 times; after that, a"
        " job fails"
    )
    assert arguments.command == (
        "holdfast jobs list --app MODULE:NAME --state queued --code HANDED_BACK"
        " --queue mail --name send_mail"
    )
    (fine,) = judge(OLD, NEW)[Check.ARGUMENTS]
    assert fine.severity is Severity.OK
