"""The demo: a batch during which one worker is killed."""

from __future__ import annotations

import csv
from pathlib import Path

import pypdfium2  # type: ignore[import-untyped]
import pytest

from holdfast_systems.demos import documents
from holdfast_systems.demos.frame import open_stage

pytestmark = pytest.mark.heavy


def text_of(path: Path) -> str:
    with pypdfium2.PdfDocument(path) as pdf:
        return str(pdf[0].get_textpage().get_text_range())


async def test_a_batch_is_done_once_though_a_worker_was_killed(tmp_path: Path) -> None:
    async with open_stage("documents", tmp_path / "out") as stage:
        await documents.run(stage)
        assert [step.failures for step in stage.steps if step.failures] == []
    assert stage.succeeded
    with (tmp_path / "out" / "documents.csv").open(encoding="utf-8") as table:
        rows = list(csv.DictReader(table))
    assert {row["status"] for row in rows} == {"SUCCEEDED"}
    assert len({row["file"] for row in rows}) == len(rows) == documents.RECORDS
    assert any(row["attempts"] == "2" for row in rows)
    paths = sorted((tmp_path / "out" / "pdfs").iterdir())
    numbers = {word for path in paths for word in text_of(path).split()}
    assert {f"2026-{number:04}" for number in range(1, documents.RECORDS + 1)} <= numbers
