"""No tenant notices another one, not even by the IDs that it chooses."""

from __future__ import annotations

from uuid import UUID

import pytest

from holdfast import Holdfast
from holdfast.stores.migrations import application_steps, split
from holdfast_systems.passport.errors import ValidationError
from tests.support.running import QUICK, execute
from tests.systems.passport.line import Line
from tests.systems.passport.samples import DOCUMENT, TENANT

pytestmark = pytest.mark.heavy

PACKAGE = "holdfast_systems.passport"
CHOSEN = UUID("11111111-1111-7111-8111-111111111111")


async def test_two_tenants_choose_the_same_snapshot_id(line: Line) -> None:
    passport = line.passport
    for tenant in (TENANT, "other"):
        assert await passport.open_snapshot(tenant, id=CHOSEN) == CHOSEN
        await passport.add_document(tenant, CHOSEN, "bom.csv", DOCUMENT)
    await line.run()
    await passport.seal_snapshot(TENANT, CHOSEN)
    with pytest.raises(ValidationError, match="is sealed"):
        await passport.add_document(TENANT, CHOSEN, "more.csv", DOCUMENT + b"CELL-9,zinc,1\n")
    await passport.add_document("other", CHOSEN, "more.csv", DOCUMENT + b"CELL-9,zinc,1\n")
    with pytest.raises(Exception, match="sealed snapshot never changes"):
        await line.execute(
            "UPDATE passport_snapshot_documents SET parsed_at = NULL WHERE tenant = 'acme'"
        )


async def test_snapshots_of_an_older_database_keep_what_is_in_them(store_url: str) -> None:
    await make_version_2(store_url)
    line = Line(store_url)
    await line.hf.migrate()
    async with line.hf:
        (snapshot,) = await line.rows("passport_snapshots")
        assert (str(snapshot["id"]), snapshot["status"]) == (str(CHOSEN), "SEALED")
        assert await line.count("passport_snapshot_documents") == 1
        with pytest.raises(Exception, match="sealed snapshot never changes"):
            await line.execute("DELETE FROM passport_snapshot_documents")
        assert await line.passport.open_snapshot("other", id=CHOSEN) == CHOSEN


async def make_version_2(url: str) -> None:
    """A sealed snapshot with a document."""
    hf = Holdfast(url, **QUICK)
    await hf.migrate()
    await hf.close()
    dialect = "sqlite" if url.startswith("sqlite") else "postgres"
    for step in application_steps(dialect, PACKAGE)[:2]:
        for statement in split(step.sql) if dialect == "sqlite" else [step.sql]:
            await execute(url, statement)
        at = "0" if dialect == "sqlite" else "now()"
        await execute(
            url,
            f"INSERT INTO application_steps VALUES ('passport', {step.version}, 'old', {at})",
        )
    empty = "x''" if dialect == "sqlite" else "''"
    values = {"id": CHOSEN, "hash": "0" * 64, "at": "2026-01-01T00:00:00Z", "empty": empty}
    for statement in (
        "INSERT INTO passport_document_versions VALUES ('{id}', 'acme', 'a', 'bom.1', {empty},"
        " '{hash}', '{at}')",
        "INSERT INTO passport_snapshots VALUES ('{id}', 'acme', 'OPEN', NULL, '{at}', NULL)",
        "INSERT INTO passport_snapshot_documents VALUES ('acme', '{id}', '{id}', '{at}')",
        "UPDATE passport_snapshots SET status = 'SEALED', sealed_at = created_at",
    ):
        await execute(url, statement.format(**values))
