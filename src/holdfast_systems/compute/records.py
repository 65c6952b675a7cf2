"""The tables: requests, results, artifacts, and the job that stands for each hash of inputs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, TypeVar
from uuid import UUID, uuid4

import msgspec

from holdfast import Holdfast, Judgment, Tenant
from holdfast_systems.compute.answers import Answer, Artifact
from holdfast_systems.compute.contract import Flaw
from holdfast_systems.compute.counters import Counts, DefinitionCounts

Row = TypeVar("Row")


class RequestRow(msgspec.Struct, frozen=True):
    id: UUID
    tenant_id: str
    app_id: str
    definition: str
    version: str
    inputs_hash: str
    payload_json: str
    priority: int


class JobRow(msgspec.Struct, frozen=True):
    """A job: queued, running, succeeded, failed or canceled."""

    id: UUID
    tenant_id: str
    status: str
    attempts: int
    last_error: str | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None

    @property
    def may_answer(self) -> bool:
        """Whether it has a result, or may still get one."""
        return self.status in ("queued", "running", "succeeded")


class HolderRow(msgspec.Struct, frozen=True):
    job_id: UUID


class ForgottenRow(msgspec.Struct, frozen=True):
    id: UUID


class ResultRow(msgspec.Struct, frozen=True):
    outputs_json: str
    score: Decimal | None


class ArtifactRow(msgspec.Struct, frozen=True):
    kind: str
    url: str
    media_type: str
    expires_at: datetime | None


class ContentRow(msgspec.Struct, frozen=True):
    media_type: str
    content: bytes
    tenant_id: str


class Records:
    def __init__(self, hf: Holdfast) -> None:
        self._hf = hf
        self.tables = hf.tables("compute", package="holdfast_systems.compute")

    async def claim(self, connection: Any, inputs_hash: str, tenant_id: str, job_id: UUID) -> UUID:
        """Claim a hash for this job, unless another job has or may still get its result.

        Return the job that has the hash. Concurrent claims of one hash wait for each other.
        """
        statements = self.tables.on(connection)
        names = {"inputs_hash": inputs_hash, "job_id": job_id}
        holder = await statements.one("claim_hash", HolderRow, tenant_id=tenant_id, **names)
        if holder is None or holder.job_id == job_id:
            return job_id
        # A second statement, because it sees what was committed while the first one waited.
        job = await statements.one("find_job", JobRow, id=holder.job_id)
        if job is not None and job.may_answer:
            return holder.job_id
        await statements.execute("give_hash", **names)
        return job_id

    async def insert(self, connection: Any, request: RequestRow) -> None:
        await self.tables.on(connection).execute("insert_job", **msgspec.structs.asdict(request))

    async def request_of(self, job_id: UUID, inputs_hash: str) -> RequestRow | None:
        """Find the request of this job; a requeued job takes over the request of the old one."""
        found = await self._one(self._hf, "find_request", RequestRow, id=job_id)
        if found is not None:
            return found
        async with self._hf.transaction() as connection:
            statements = self.tables.on(connection)
            await statements.execute("adopt_job", id=job_id, inputs_hash=inputs_hash)
            adopted = await statements.one("find_request", RequestRow, id=job_id)
            if adopted is not None:
                await self.claim(connection, inputs_hash, adopted.tenant_id, job_id)
        return adopted

    async def answered_by(self, inputs_hash: str, tenant: Tenant | None = None) -> UUID | None:
        """Find the job that has a result for this hash, which names its tenant, too."""
        reader = tenant or self._hf
        found = await self._one(reader, "find_answer", HolderRow, inputs_hash=inputs_hash)
        return None if found is None else found.job_id

    async def copy_answer(self, job_id: UUID) -> Answer | None:
        """Copy the answer of another job, with links to its artifacts."""
        async with self._hf.transaction(read_only=True) as connection:
            statements = self.tables.on(connection)
            result = await statements.one("find_result", ResultRow, job_id=job_id)
            rows = await statements.all("artifacts_of_job", ArtifactRow, job_id=job_id)
        if result is None:
            return None
        artifacts = [
            Artifact(uuid4(), row.kind, row.url, row.media_type, None, row.expires_at)
            for row in rows
        ]
        return Answer(result.outputs_json, result.score, artifacts)

    async def store(self, connection: Any, job_id: UUID, attempts: int, answer: Answer) -> None:
        statements = self.tables.on(connection)
        await statements.execute(
            "insert_result",
            id=uuid4(),
            job_id=job_id,
            outputs_json=answer.outputs_json,
            score=answer.score,
            attempts=attempts,
        )
        for artifact in answer.artifacts:
            await statements.execute("insert_artifact", job_id=job_id, **vars(artifact))

    async def store_failure(
        self,
        connection: Any,
        job_id: UUID,
        attempts: int,
        judged: Judgment,
        flaws: Sequence[Flaw] = (),
    ) -> None:
        errors = [{"pointer": flaw.pointer, "detail": flaw.text} for flaw in flaws]
        await self.tables.on(connection).execute(
            "insert_failure",
            job_id=job_id,
            code=judged.code,
            text=(judged.text or "").partition("\n")[0],
            errors=msgspec.json.encode(errors).decode() if errors else None,
            attempts=attempts,
        )

    async def count(self, counts: Counts, request: RequestRow, connection: Any = None) -> None:
        """Add to the counters of the request's tenant and definition."""
        if connection is None:
            async with self._hf.transaction() as own:
                return await self.count(counts, request, own)
        await self.tables.on(connection).execute(
            "count",
            tenant_id=request.tenant_id,
            definition=request.definition,
            version=request.version,
            **msgspec.structs.asdict(counts),
        )
        return None

    async def counters(self, tenant: Tenant | None = None) -> list[DefinitionCounts]:
        """Those of one tenant, or of all."""
        reader = tenant or self._hf
        async with reader.transaction(read_only=True) as connection:
            statements = self.tables.on(connection)
            if tenant is None:
                return await statements.all("counters_of_all", DefinitionCounts)
            return await statements.all(
                "counters_of_tenant", DefinitionCounts, tenant_id=tenant.name
            )

    async def forget_jobs(self, before: datetime, rows_max: int) -> int:
        """Delete requests that ended before this time, with all that belongs to them."""
        return await self._forget("forget_jobs", before=before, rows_max=rows_max)

    async def forget_artifacts(self, rows_max: int) -> int:
        """Delete artifacts that have expired."""
        return await self._forget("forget_artifacts", rows_max=rows_max)

    async def _forget(self, statement: str, **values: Any) -> int:
        async with self._hf.transaction() as connection:
            return len(await self.tables.on(connection).all(statement, ForgottenRow, **values))

    async def job(self, job_id: UUID, tenant: Tenant) -> JobRow | None:
        """Find the tenant's job; a job of another tenant counts as missing."""
        found = await self._one(tenant, "find_job", JobRow, id=job_id)
        return found if found is not None and found.tenant_id == tenant.name else None

    async def outputs(self, job_id: UUID, tenant: Tenant) -> bytes | None:
        found = await self._one(tenant, "find_result", ResultRow, job_id=job_id)
        return None if found is None else found.outputs_json.encode()

    async def content(self, artifact_id: UUID, tenant: Tenant) -> ContentRow | None:
        found = await self._one(tenant, "find_artifact", ContentRow, id=artifact_id)
        return found if found is not None and found.tenant_id == tenant.name else None

    async def _one(
        self, reader: Holdfast | Tenant, statement: str, row_type: type[Row], **values: Any
    ) -> Row | None:
        async with reader.transaction(read_only=True) as connection:
            return await self.tables.on(connection).one(statement, row_type, **values)
