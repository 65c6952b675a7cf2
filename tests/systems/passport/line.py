"""The pipeline of one test: what it is made of, and what its tables hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from holdfast import Filter, Holdfast, Job
from holdfast.webhooks import Webhooks
from holdfast_systems.passport import BPC, Order, Passport, SigningKeys
from holdfast_systems.passport.qr import BORDER
from tests.support.running import QUICK
from tests.systems.passport.samples import DOCUMENT, ORDER, SOURCE, TENANT, sample_keys

# For what does not depend on the store.
on_sqlite = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)


class Line:
    def __init__(self, url: str, qr_border: int = BORDER, **webhooks: Any) -> None:
        self.url = url
        self.hf = Holdfast(url, **QUICK)
        self.webhooks = Webhooks(self.hf, presets=[BPC], **webhooks)
        self.keys: SigningKeys | Exception = sample_keys()
        self.before_keys: Callable[[], None] | None = None  # called once, before keys are read
        self.passport = Passport(
            self.hf, self.webhooks, read_keys=self._read_keys, qr_border=qr_border
        )

    def _read_keys(self) -> SigningKeys:
        if self.before_keys is not None:
            before, self.before_keys = self.before_keys, None
            before()
        if isinstance(self.keys, Exception):
            raise self.keys
        return self.keys

    async def prepare(self, tenant: str = TENANT, *, sealed: bool = True) -> Order:
        """A parsed document and published rules; answer an order of a passport of them."""
        passport = self.passport
        snapshot_id = await passport.open_snapshot(tenant)
        await passport.add_document(tenant, snapshot_id, "bom.csv", DOCUMENT)
        await self.run()
        if sealed:
            await passport.seal_snapshot(tenant, snapshot_id)
        rules_id = await passport.add_rules(tenant, SOURCE)
        await passport.publish_rules(tenant, rules_id)
        return await self.order(snapshot_id, rules_id)

    async def issue(self, tenant: str = TENANT) -> UUID:
        """A passport that is signed, drawn and published."""
        order = await self.prepare(tenant)
        await self.passport.compile(tenant, order)
        await self.run()
        return order.version_id(tenant)

    async def order(self, snapshot_id: UUID, rules_id: UUID) -> Order:
        return await self.passport.order(
            passport_id=ORDER.passport_id,
            snapshot_id=snapshot_id,
            rules_id=rules_id,
            build_id="build-7",
            issued_at=ORDER.issued_at,
        )

    async def run(self) -> None:
        """Do all jobs that are due, and those that follow."""
        await self.hf.run_due()

    async def ended(self, job: Job) -> Job:
        await self.run()
        return await self.hf.get(job.id)

    async def jobs(self, name: str) -> list[Job]:
        return list((await self.hf.jobs.list(Filter(name=name), limit=100)).jobs)

    async def count(self, table: str) -> int:
        return len(await self.rows(table))

    async def rows(self, table: str) -> list[dict[str, Any]]:
        async with self.hf.transaction(read_only=True) as connection:
            schema = "" if self.url.startswith("sqlite") else "holdfast."
            return [dict(row) for row in await connection.fetch(f"SELECT * FROM {schema}{table}")]

    async def execute(self, sql: str) -> Any:
        """Change a table as nobody should."""
        async with self.hf.transaction() as connection:
            schema = "" if self.url.startswith("sqlite") else "holdfast."
            return await connection.execute(sql.replace("passport_", f"{schema}passport_", 1))
