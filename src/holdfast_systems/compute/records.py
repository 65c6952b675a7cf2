"""What the system keeps: requests, results, artifacts, and who answers for which inputs."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import msgspec

from holdfast import Holdfast
from holdfast_systems.compute.answers import Answer, Artifact
from holdfast_systems.compute.rows import (
    ArtifactRow,
    ContentRow,
    HolderRow,
    JobRow,
    RequestRow,
    ResultRow,
)


class Records:
    def __init__(self, hf: Holdfast) -> None:
        self._hf = hf
        self._tables = hf.tables("compute", package="holdfast_systems.compute")

    async def claim(self, connection: Any, inputs_hash: str, job_id: UUID) -> UUID:
        """Answer which job has this hash: another one, unless that ended without a result, or this
        one from now on. Two who claim the same wait for each other."""
        statements = self._tables.on(connection)
        names = {"inputs_hash": inputs_hash, "job_id": job_id}
        holder = await statements.one("claim_hash", HolderRow, **names)
        if holder is None or holder.job_id == job_id:
            return job_id
        # By a statement of its own, which sees what was committed while the first one waited.
        job = await statements.one("find_job", JobRow, id=holder.job_id)
        if job is not None and job.may_answer:
            return holder.job_id
        await statements.execute("give_hash", **names)
        return job_id

    async def insert(self, connection: Any, request: RequestRow) -> None:
        await self._tables.on(connection).execute("insert_job", **msgspec.structs.asdict(request))

    async def request_of(self, job_id: UUID, inputs_hash: str) -> RequestRow | None:
        """The request of this job; a job that was requeued takes over that of the old one."""
        async with self._hf.transaction(read_only=True) as connection:
            statements = self._tables.on(connection)
            found = await statements.one("find_request", RequestRow, id=job_id)
        if found is not None:
            return found
        async with self._hf.transaction() as connection:
            statements = self._tables.on(connection)
            await statements.execute("adopt_job", id=job_id, inputs_hash=inputs_hash)
            adopted = await statements.one("find_request", RequestRow, id=job_id)
            if adopted is not None:
                await self.claim(connection, inputs_hash, job_id)
        return adopted

    async def answered(self, inputs_hash: str) -> UUID | None:
        """The job that has a result for this hash."""
        async with self._hf.transaction(read_only=True) as connection:
            statements = self._tables.on(connection)
            found = await statements.one("find_answer", HolderRow, inputs_hash=inputs_hash)
        return None if found is None else found.job_id

    async def copied(self, job_id: UUID) -> Answer | None:
        """The answer of another job, with links to its artifacts."""
        async with self._hf.transaction(read_only=True) as connection:
            statements = self._tables.on(connection)
            result = await statements.one("find_result", ResultRow, job_id=job_id)
            rows = await statements.all("artifacts_of_job", ArtifactRow, job_id=job_id)
        if result is None:
            return None
        artifacts = [
            Artifact(uuid4(), row.kind, row.url, row.media_type, None, row.expires_at)
            for row in rows
        ]
        return Answer(result.outputs_json, result.score, artifacts)

    async def keep(self, connection: Any, job_id: UUID, attempts: int, answer: Answer) -> None:
        statements = self._tables.on(connection)
        await statements.execute(
            "insert_result",
            id=uuid4(),
            job_id=job_id,
            outputs_json=answer.outputs_json,
            score=answer.score,
            attempts=attempts,
        )
        for artifact in answer.artifacts:
            await statements.execute(
                "insert_artifact",
                id=artifact.id,
                job_id=job_id,
                kind=artifact.kind,
                url=artifact.url,
                media_type=artifact.media_type,
                content=artifact.content,
                expires_at=artifact.expires_at,
            )

    async def job(self, job_id: UUID, tenant: UUID | None) -> JobRow | None:
        """The tenant's own job; what belongs to another is not there."""
        async with self._hf.transaction(read_only=True) as connection:
            found = await self._tables.on(connection).one("find_job", JobRow, id=job_id)
        return found if found is not None and found.tenant_id == tenant else None

    async def outputs(self, job_id: UUID) -> bytes | None:
        async with self._hf.transaction(read_only=True) as connection:
            statements = self._tables.on(connection)
            found = await statements.one("find_result", ResultRow, job_id=job_id)
        return None if found is None else found.outputs_json.encode()

    async def content(self, artifact_id: UUID, tenant: UUID | None) -> ContentRow | None:
        async with self._hf.transaction(read_only=True) as connection:
            statements = self._tables.on(connection)
            found = await statements.one("find_artifact", ContentRow, id=artifact_id)
        return found if found is not None and found.tenant_id == tenant else None
