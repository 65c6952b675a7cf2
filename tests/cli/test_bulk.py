"""`holdfast bulk`, run as people and scripts run it."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from holdfast import Filter, Holdfast
from holdfast.domain.audit import AuditFilter
from tests.cli.test_cli import Run, folder, lines_of, run, sqlite_url
from tests.support.bulk import run_all, waiting_jobs

pytestmark = pytest.mark.heavy

__all__ = ["folder", "run", "sqlite_url"]  # the fixtures of the command's tests

NOBODY = UUID(int=7)


async def test_a_change_is_listed_started_paused_resumed_and_shown(
    local_hf: Holdfast, local_url: str, run: Run
) -> None:
    await waiting_jobs(local_hf, 30)
    made = await local_hf.bulk.create(
        "cancel", Filter(name="wait"), jobs_per_second=50, by="ann", because="wrong file"
    )
    header, row = run("bulk", url=local_url).stdout.splitlines()
    assert header.split() == ["ID", "ACTION", "STATE", "DONE", "LEFT", "MADE", "BY", "BECAUSE"]
    assert row.split()[:4] == [str(made.id), "cancel", "previewed", "0/30"]
    for verb, state in (("start", "running"), ("pause", "paused"), ("resume", "running")):
        ran = run("bulk", verb, str(made.id), "--by", "bob", url=local_url)
        assert ran.stdout == f"bulk change {made.id} is {state}: 0 of 30 jobs done\n"
    await run_all(local_hf, made)
    (seen,) = lines_of(run("bulk", "list", "--json", url=local_url))
    assert (seen["state"], seen["changed"]) == ("completed", 30)
    shown = run("bulk", "show", str(made.id), "--follow", url=local_url).stdout
    for line in ("changed        30", "because        wrong file", "at first       30 queued wait"):
        assert line in shown
    assert (
        json.loads(run("bulk", "show", str(made.id), "--json", url=local_url).stdout)["done"] == 30
    )
    entries = (await local_hf.audit.list(AuditFilter(actor="bob"))).entries
    assert [(each.action, each.jobs) for each in entries] == [
        ("bulk.resume", 30), ("bulk.pause", 30), ("bulk.start", 30),
    ]  # fmt: skip


async def test_what_can_not_be_done_is_an_error_and_changes_nothing(
    local_hf: Holdfast, local_url: str, run: Run
) -> None:
    made = await local_hf.bulk.create("cancel", Filter(name="wait"))
    assert run("bulk", "cancel", str(made.id), url=local_url).returncode == 0
    late = run("bulk", "resume", str(made.id), url=local_url)
    assert (late.returncode, late.stdout) == (1, "")
    assert f"bulk change {made.id} is canceled and can't be resumed" in late.stderr
    assert "does not exist" in run("bulk", "show", str(NOBODY), url=local_url).stderr
    assert "is not the ID of a bulk change" in run("bulk", "show", "x", url=local_url).stderr
