"""Row-level security changes no plan: a policy is a filter on what the statement's index finds.

An operator that is not leakproof would run after the policy, and so could not use its index.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

import asyncpg

from holdfast import Filter, Holdfast, State
from holdfast.domain.scope import scope
from holdfast.operations.own_tables import PACKAGE
from holdfast.stores.postgres import row_security
from holdfast.stores.postgres.queries import IN_ORDER, PLANNED, page_values
from holdfast.stores.postgres.rows import SQL
from holdfast.stores.statements import Statement, load, read_sql
from tests.support.roles import InstalledRoles, installed_roles
from tests.support.running import QUICK

OWN: Final = "acme"
JOBS: Final = {"globex": 3000, OWN: 100}
GENERIC: Final = "SET LOCAL plan_cache_mode = force_generic_plan"
SMALL: Final = "SET LOCAL enable_seqscan = off"
KEYS: Final = load(read_sql(PACKAGE, "keys.sql"), numbered=True)
REQUESTS: Final = load(read_sql(PACKAGE, "requests.sql"), numbered=True)


class Case(NamedTuple):
    statement: Statement
    settings: str
    values: Mapping[str, Any]


def of_jobs(job_id: UUID) -> Iterator[Case]:
    yield Case(SQL["get"], GENERIC, {"job_id": job_id, "tenant": OWN})
    yield Case(SQL["changed"], GENERIC, {"ids": [job_id], "versions": [""], "tenant": OWN})
    yield Case(SQL["kept_keys"], GENERIC, {"tenants": [OWN], "keys": ["k"]})
    yield Case(SQL["leases_of"], GENERIC, {"workers": ["w"]})
    for filter in (
        Filter(tenant=OWN),
        Filter(tenant=OWN, states=(State.DEAD,)),
        Filter(tenant=OWN, correlation_id="c"),
        Filter(tenant=OWN, parent_id=job_id),
    ):
        yield Case(SQL["page"], IN_ORDER, page_values(filter, 50, job_id))
    yield Case(SQL["counts"], PLANNED, {"tenant": OWN})
    yield Case(SQL["counts_waiting_tenant"], IN_ORDER, {"tenant": OWN, "look_max": 100})
    yield Case(SQL["counts_running"], IN_ORDER, {"tenant": OWN})
    yield Case(SQL["counts_ended"], IN_ORDER, {"tenant": OWN})


async def test_the_role_api_reads_along_the_same_indexes(postgres_url: str) -> None:
    async with installed_roles(postgres_url) as roles:
        job_id = await fill(roles)
        worker = await asyncpg.connect(roles.url("worker"), statement_cache_size=0)
        api = await asyncpg.connect(roles.url("api"), statement_cache_size=0)
        try:
            for case in of_jobs(job_id):
                plain = await scans(worker, case)
                assert plain
                assert await scans(api, case) == plain, case.statement.sql
            found = await scans(api, Case(KEYS["find_key"], SMALL, {"id": "x"}))
            assert found == {("Index Scan", "api_keys_pkey", True)}
            request = {"scope": OWN, "key": "k"}
            found = await scans(api, Case(REQUESTS["find_request"], SMALL, request))
            assert found == {("Index Scan", "api_requests_pkey", True)}
        finally:
            await worker.close()
            await api.close()


async def fill(roles: InstalledRoles) -> UUID:
    async with Holdfast(roles.admin_url, **QUICK) as hf:

        @hf.job
        async def add(a: int) -> int:
            return a

        for name, jobs_max in JOBS.items():
            marked = add.options(correlation_id="c")
            calls = [marked.call(number) for number in range(jobs_max)]
            jobs = await hf.for_tenant(name).enqueue_many(calls)
        async with hf.transaction() as connection:
            await connection.execute("ANALYZE holdfast.jobs")
    return jobs[50].id


async def scans(connection: Any, case: Case) -> set[tuple[str, str, bool]]:
    """How a statement reads: the kinds of scans, their indexes, and whether they search these."""
    block = connection.transaction()
    await block.start()
    try:
        with scope(OWN):
            await connection.execute(f"{row_security.settings()}; {case.settings}")
        explain = f"EXPLAIN (FORMAT JSON) {case.statement.sql}"
        told = await connection.fetchval(explain, *case.statement.arguments(case.values))
    finally:
        await block.rollback()
    return {
        (node["Node Type"], node.get("Index Name", node["Relation Name"]), "Index Cond" in node)
        for node in nodes(json.loads(told)[0]["Plan"])
        if "Relation Name" in node
    }


def nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from nodes(child)
