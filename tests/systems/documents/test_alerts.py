"""The six metrics and three alerts of the document: each has a value, and each alert fires."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import yaml

from holdfast_systems.documents.system import Documents
from tests.support.forks import ROOT
from tests.systems.documents.bench import Bench
from tests.systems.documents.organization import DOCUMENT
from tests.systems.documents.promql import Prometheus, Scrape, scrape
from tests.systems.documents.test_documents import LETTER, create

pytestmark = pytest.mark.heavy

PAGE = yaml.safe_load((ROOT / "deploy/documents.rules.yml").read_text(encoding="utf-8"))
RULES: list[dict[str, Any]] = [rule for group in PAGE["groups"] for rule in group["rules"]]
RECORDED: dict[str, str] = {rule["record"]: rule["expr"] for rule in RULES if "record" in rule}
ALERTS = {rule["alert"]: rule for rule in RULES if "alert" in rule}
BUCKET = "holdfast_processing_duration_ms_bucket"


@pytest.fixture
async def documents(bench: Bench) -> AsyncIterator[Documents]:
    documents = Documents(bench.url, poll_seconds=0.1, grace_seconds=0.0)
    async with documents.hf:
        await documents.hf.metrics()  # from now on, it counts
        yield documents


def fires(alert: str, *scrapes: Scrape) -> bool:
    return bool(Prometheus(scrapes, RECORDED).evaluate(ALERTS[alert]["expr"]))


async def test_the_six_metrics_have_values(bench: Bench, documents: Documents) -> None:
    await create(bench)
    await documents.hf.run_due()
    before = scrape(0, await documents.hf.metrics())
    await bench.fault(times=2, status=503, code="SERVER_UNAVAILABLE", path="ContentVersion")
    for data in (LETTER, "no JSON"):
        await create(bench, data)
    await documents.hf.run_due()
    last = scrape(5, await documents.hf.metrics())
    prometheus = Prometheus([before, last], RECORDED)
    assert set(RECORDED) == {
        *("queue_depth", "processing_duration_ms", "processing_rate"),
        *("retry_total", "retry_rate", "failed_total"),
    }
    values = {name: prometheus.evaluate(name) for name in RECORDED}
    assert values["retry_total"] == {frozenset({("attempt", "1")}): 1}
    totals = {name: sum(vector.values()) for name, vector in values.items()}
    assert totals["failed_total"] == 1
    assert totals["processing_duration_ms"] > 0
    assert totals["processing_rate"] == pytest.approx(2 / 300)
    assert totals["retry_rate"] == pytest.approx(1 / 300)


async def test_queue_depth_above_1000_for_10_minutes_fires(
    bench: Bench, documents: Documents
) -> None:
    rows: Sequence[dict[str, Any]] = [{"Template__c": "letter"}] * 200
    for _ in range(5):
        await bench.customer.insert_all(DOCUMENT, rows)
    assert not fires("DocumentsQueueDeep", scrape(0, await documents.hf.metrics()))
    await bench.create()
    fresh = Documents(bench.url)
    async with fresh.hf:
        assert fires("DocumentsQueueDeep", scrape(10, await fresh.hf.metrics()))
    assert ALERTS["DocumentsQueueDeep"]["for"] == "10m"


async def test_a_spike_of_failed_documents_fires(bench: Bench, documents: Documents) -> None:
    await create(bench, "no JSON")
    await documents.hf.run_due()
    before = scrape(0, await documents.hf.metrics())
    for _ in range(11):
        await create(bench, "no JSON")
    await documents.hf.run_due()
    after = scrape(9, await documents.hf.metrics())
    assert not fires("DocumentsFailedSpike", before, before._replace(minute=9))
    assert fires("DocumentsFailedSpike", before, after)


async def test_a_p95_above_30_seconds_fires(bench: Bench, documents: Documents) -> None:
    before = scrape(0, await documents.hf.metrics())
    await create(bench)
    await documents.hf.run_due()
    quick = scrape(5, await documents.hf.metrics())
    assert not fires("DocumentsSlow", before, quick)
    # As if it had taken 45 seconds.
    slow = {
        (name, labels): 0.0 if name == BUCKET and float(dict(labels)["le"]) < 45_000 else value
        for (name, labels), value in quick.samples.items()
    }
    assert fires("DocumentsSlow", before, Scrape(5, slow))
    assert ALERTS["DocumentsSlow"]["for"] == "10m"
