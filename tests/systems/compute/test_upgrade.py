"""A database with the tables of an older version: it loses nothing, and goes on."""

from __future__ import annotations

from importlib.resources import files
from uuid import UUID

import pytest

from holdfast import Holdfast
from holdfast_systems.compute.service import Compute
from holdfast_systems.compute.settings import ComputeSettings
from tests.support.running import QUICK, execute

IDS = [UUID(int=number) for number in (1, 2)]
TENANT = UUID("11111111-1111-4111-8111-111111111111")


async def make_version_1(url: str) -> None:
    """Two requests without a job: one has no tenant."""
    hf = Holdfast(url, **QUICK)
    await hf.migrate()
    await hf.close()
    dialect = "sqlite" if url.startswith("sqlite") else "postgres"
    folder = files("holdfast_systems.compute").joinpath("sql", dialect, "migrations")
    steps = folder.joinpath("0001_compute.sql").read_text(encoding="utf-8").split(";\n")
    for step in filter(str.strip, steps):
        await execute(url, step)
    at = "0" if dialect == "sqlite" else "now()"
    await execute(url, f"INSERT INTO application_steps VALUES ('compute', 1, 'compute', {at})")
    for job_id, tenant in zip(IDS, ["NULL", f"'{TENANT}'"], strict=True):
        await execute(
            url,
            "INSERT INTO compute_jobs (id, tenant_id, app_id, definition, version, inputs_hash,"
            f" payload_json, priority, created_at) VALUES ('{job_id}', {tenant}, 'a', 'd', '1',"
            f" '{'0' * 64}', '{{}}', 7, '2026-01-01T00:00:00.000000Z')",
        )
    await execute(url, f"INSERT INTO compute_hashes (inputs_hash, job_id) VALUES ('h', '{IDS[1]}')")


@pytest.mark.heavy
async def test_what_had_no_tenant_belongs_to_default(store_url: str) -> None:
    await make_version_1(store_url)
    async with Holdfast(store_url, **QUICK) as hf:
        await hf.close()
        compute = Compute(hf, ComputeSettings())
        await hf.migrate()
        for tenant, own in (("default", IDS[0]), (str(TENANT), IDS[1])):
            found = [await compute.records.job(each, hf.for_tenant(tenant)) for each in IDS]
            assert [job.id for job in found if job] == [own]
        async with hf.transaction(read_only=True) as connection:
            table = (
                "compute_hashes" if store_url.startswith("sqlite") else "holdfast.compute_hashes"
            )
            assert await connection.fetchval(f"SELECT tenant_id FROM {table}") == str(TENANT)
