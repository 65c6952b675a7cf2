"""The system under test: its settings, its folders, and workers in this process or in others."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

from holdfast import Holdfast, State
from holdfast_systems.convert.records import Conversion
from holdfast_systems.convert.service import Convert
from holdfast_systems.convert.settings import ConvertSettings
from tests.support.processes import Process, wait_until
from tests.support.running import QUICK, let_leases_run_out
from tests.systems.convert.scripted import script

LEASE_SECONDS = 60
RENEW_SECONDS = 0.3
RECLAIM_SECONDS = 0.2


class Bench:
    def __init__(self, settings: ConvertSettings, folder: Path) -> None:
        self.settings = settings
        self.folder = folder
        self.processes: list[Process] = []
        self.hf = Holdfast(settings.database_url, reclaim_seconds=RECLAIM_SECONDS, **QUICK)
        self.convert = Convert(self.hf, settings)

    def other(self, **changes: Any) -> Convert:
        """The same system in another worker, with some settings changed."""
        settings = replace(self.settings, **changes)
        return Convert(Holdfast(settings.database_url, **QUICK), settings)

    async def submit(self, *answers: dict[str, Any], mapping: str = "text") -> UUID:
        return await self.convert.submit(script(*answers), mapping, "scripted.pdf")

    async def conversion(self, job_id: UUID) -> Conversion:
        found = await self.convert.get(job_id)
        assert found is not None
        return found

    async def has_status(self, job_id: UUID, status: str) -> bool:
        return (await self.conversion(job_id)).status == status

    async def reaches(self, job_id: UUID, status: str) -> Conversion:
        await wait_until(lambda: self.has_status(job_id, status), lambda: f"{status}: {self.logs}")
        return await self.conversion(job_id)

    async def wait_seconds(self, job_id: UUID) -> float:
        """How long a job waits after its last failed attempt."""
        job = await self.hf.get(job_id)
        assert job.state is State.QUEUED
        return (job.run_at - (await self.hf.jobs.attempts(job_id))[-1].ended_at).total_seconds()

    async def run_again(self, job_id: UUID) -> None:
        await self.hf.jobs.retry(job_id)
        await self.hf.run_due()

    async def let_leases_run_out(self) -> None:
        assert self.settings.database_url is not None
        await let_leases_run_out(self.settings.database_url)

    @property
    def results(self) -> dict[str, str]:
        """What lies in the folder of results, temporary files included."""
        return {
            path.name: path.read_text(encoding="utf-8")
            for path in self.settings.results_dir.iterdir()
        }

    def worker(self, *options: str, **environment: str) -> Process:
        """Start a real `holdfast worker`."""
        variables = {
            "DATABASE_URL": self.settings.database_url or "",
            "GATEWAY_URL": self.settings.gateway_url,
            "UPLOADS_DIR": str(self.settings.uploads_dir),
            "RESULTS_DIR": str(self.settings.results_dir),
            "WORKER_LEASE_TTL_SEC": str(LEASE_SECONDS),
            "HOLDFAST_RENEW_SECONDS": str(RENEW_SECONDS),
            "HOLDFAST_RECLAIM_SECONDS": str(RECLAIM_SECONDS),
            "HOLDFAST_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/elsewhere",
        }
        command = ["-m", "holdfast.cli.main", "worker", "holdfast_systems.convert.app:hf"]
        logging = ["--log-format=json", "--log-level=debug"]
        name = f"worker-{len(self.processes)}"
        process = Process(
            name, [*command, *logging, *options], self.folder, variables | environment
        )
        self.processes.append(process)
        return process

    @property
    def logs(self) -> str:
        return "\n".join(process.text[-3000:] for process in self.processes)

    async def close(self) -> None:
        for process in self.processes:
            process.kill()
        await self.hf.close()


async def gateway_address(process: Process) -> str:
    await process.prints()
    address: str = json.loads(process.output[0])["address"]
    return address
