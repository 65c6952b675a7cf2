"""15. SQLite and PostgreSQL behave the same: one scenario leaves the same record on each."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

from holdfast import (
    Attempt,
    DuplicateJob,
    Filter,
    IdempotencyConflict,
    Job,
    JobNotFound,
    State,
    WrongState,
)
from tests.promises.stage import Stage
from tests.support.services import fast

pytestmark = [pytest.mark.heavy, pytest.mark.long]

SERVERS = ["pg15"] if fast() else ["pg15", "pg18"]
FILTERS = (Filter(), Filter(tag="a"), Filter(tenant="t"), Filter(queue="other"))
Record = dict[str, Any]


@pytest.fixture
async def sqlite_stage(tmp_path: Path) -> AsyncIterator[Stage]:
    folder = tmp_path / "sqlite"
    folder.mkdir()
    stage = Stage(f"sqlite:///{folder / 'jobs.db'}", folder)
    yield stage
    await stage.close()


@pytest.mark.parametrize("store_url", SERVERS, indirect=True)
async def test_one_scenario_leaves_the_same_record_on_every_store(
    stage: Stage, sqlite_stage: Stage
) -> None:
    on_sqlite, on_postgres = await asyncio.gather(play(sqlite_stage), play(stage))
    for scene, record in on_sqlite.items():
        assert on_postgres[scene] == record, scene
    assert on_postgres == on_sqlite


async def play(stage: Stage) -> Record:
    """Do all that can be done to jobs, one worker and one job at a time; answer the record."""
    crashing = await crash_and_release(stage)
    cast = {"crashing": crashing, **await enqueue_cast(stage)}
    refusals = await refused(stage, cast)
    worker = stage.worker(concurrency=1)
    await stage.noted("start", cast["canceled while it ran"].id)
    await stage.hf.jobs.cancel(cast["canceled while it ran"].id)
    await stage.ended(*[job for name, job in cast.items() if name != "far away"])
    await stage.ended(await stage.hf.jobs.retry(cast["far away"].id))
    cast["requeued"] = await stage.hf.jobs.requeue(cast["hopeless"].id)
    await stage.ended(cast["requeued"])
    cast["retried when ended"] = await stage.hf.jobs.retry(cast["plain"].id)
    await stage.ended(cast["retried when ended"])
    worker.signal(signal.SIGTERM)
    await worker.ended()
    return {"refusals": refusals, **await recorded(stage, cast)}


async def crash_and_release(stage: Stage) -> Job:
    """Let a job lose its first worker by a kill, and its second by a signal."""
    job = await stage.jobs.gated.enqueue("gate.2")
    worker = stage.worker()
    await stage.noted("start", job.id)
    worker.kill()
    worker = stage.worker(grace_seconds=0)
    await stage.let_run_out(job)
    await stage.noted("start", job.id, times=2)
    worker.signal(signal.SIGTERM)
    await worker.ended()
    stage.open_gate("gate.2")
    assert await stage.worker("--until-empty").ended() == 0
    return job


async def enqueue_cast(stage: Stage) -> dict[str, Job]:
    """Priorities make the order of their starts certain."""
    jobs = stage.jobs
    rich = jobs.quick.options(
        priority=5, tenant="t", correlation_id="c", tags=["b", "a"], queue="other", max_attempts=9
    )
    cast = {
        "canceled while it ran": await jobs.gated.options(priority=-8).enqueue("never"),
        "unsteady": await jobs.unsteady.options(priority=1).enqueue(2),
        "exhausted": await jobs.unsteady.options(priority=2, max_attempts=2).enqueue(9),
        "hopeless": await jobs.hopeless.options(priority=3).enqueue("no way"),
        "snoozing": await jobs.snoozing.options(priority=4).enqueue(),
        "rich": await rich.enqueue(4),
        "reporting": await jobs.reporting.options(priority=6).enqueue(),
        "plain": await jobs.quick.enqueue(7),
        "keyed": await jobs.quick.options(idempotency_key="key").enqueue(8),
        "odd": await jobs.odd.options(priority=7).enqueue("odd keys"),
        "far away": await jobs.quick.options(priority=8, delay_seconds=9999).enqueue(9),
        "expired": await jobs.quick.options(priority=9, expires_in_seconds=0).enqueue(10),
        "canceled while it waited": await jobs.quick.enqueue(11),
    }
    await stage.hf.jobs.cancel(cast["canceled while it waited"].id)
    return cast


async def refused(stage: Stage, cast: dict[str, Job]) -> list[str]:
    """What the stores refuse, and with which words."""
    keyed = stage.jobs.quick.options(idempotency_key="key")
    twin = stage.jobs.quick.options(id=cast["plain"].id)
    missing = UUID(int=0)
    said = [str((await keyed.enqueue(8)).id == cast["keyed"].id)]
    for refusal in (
        keyed.enqueue(1),
        twin.enqueue(1),
        stage.hf.enqueue_many([stage.jobs.quick.call(1), twin.call(2)]),
        stage.hf.get(missing),
        stage.hf.jobs.cancel(missing),
        stage.hf.jobs.retry(missing),
        stage.hf.jobs.requeue(cast["plain"].id),
        stage.hf.jobs.cancel(cast["canceled while it waited"].id),
    ):
        with pytest.raises((IdempotencyConflict, DuplicateJob, JobNotFound, WrongState)) as caught:
            await refusal
        said.append(f"{caught.type.__name__}: {anonymous(str(caught.value), cast)}")
    return said


async def recorded(stage: Stage, cast: dict[str, Job]) -> Record:
    hf = stage.hf
    jobs = {name: await hf.get(job.id) for name, job in cast.items()}
    names = {str(job.id): name for name, job in cast.items()}
    pages = [
        [names[str(job.id)] for job in (await hf.jobs.list(filter)).jobs]
        for filter in (*FILTERS, *[Filter(states=(state,)) for state in State])
    ]
    lines = {
        name: [
            (entry["what"], entry["attempt"], entry["fence"]) for entry in stage.ledger(job=job.id)
        ]
        for name, job in cast.items()
    }
    return {
        **{name: normal(job, cast) for name, job in jobs.items()},
        **{
            f"attempts of {name}": [normal(each, cast) for each in await hf.jobs.attempts(job.id)]
            for name, job in jobs.items()
        },
        "order of the first starts": list(
            dict.fromkeys(names[entry["job"]] for entry in stage.ledger("start"))
        ),
        "ledger": lines,
        "pages": pages,
        "counts": sorted(await hf.jobs.counts()),
        "counts of a tenant": sorted(await hf.jobs.counts("t")),
    }


def normal(record: Job | Attempt, cast: dict[str, Job]) -> Record:
    """Keep what must be equal: all but when, and by whom."""
    return {
        name: normal_value(name, value, cast)
        for name, value in msgspec.structs.asdict(record).items()
    }


def normal_value(name: str, value: Any, cast: dict[str, Job]) -> Any:
    if isinstance(value, datetime):
        return "a time"
    if name == "worker" and value is not None:
        return "a worker"
    if isinstance(value, UUID | str):
        return anonymous(str(value), cast)
    return value


def anonymous(text: str, cast: dict[str, Job]) -> str:
    for name, job in cast.items():
        text = text.replace(str(job.id), f"<{name}>")
    words = text.split()
    return " ".join("<worker>" if word.count(":") == 2 else word for word in words)
