"""The demonstration: a busy receiver, a snapshot that was not sealed, and files that hold."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from pathlib import Path

import pytest

from holdfast_systems.demos import passport
from holdfast_systems.demos.frame import open_stage
from holdfast_systems.passport import verify
from holdfast_systems.passport.files import read_files
from tests.systems.passport.line import on_sqlite
from tests.systems.passport.test_qr import scan

pytestmark = pytest.mark.heavy


async def play(url: str, out: Path) -> None:
    async with open_stage("passport", out, url) as stage:
        await passport.run(stage)
        assert [step.failures for step in stage.steps if step.failures] == []
    assert stage.succeeded
    files = {"passport.json", "receipt.json", "qr.png", "label.pdf"}
    assert {made.path.name for made in stage.files} == files
    receipt = json.loads((out / "receipt.json").read_bytes())
    sealed = read_files(out)
    verification = verify(sealed, {receipt["key_id"]: b64decode(receipt["public_key"])})
    assert verification.is_valid, verification.problems
    assert len(verification.held + verification.unchecked) == 6
    assert scan(out / "qr.png") == sealed.qr_text


@on_sqlite
async def test_a_bill_of_materials_becomes_a_passport_that_a_stranger_can_check(
    store_url: str, tmp_path: Path
) -> None:
    await play(store_url, tmp_path / "out")


@pytest.mark.parametrize("store_url", ["pg15"], indirect=True)
async def test_two_demonstrations_on_one_database_do_not_disturb_each_other(
    store_url: str, tmp_path: Path
) -> None:
    async with asyncio.TaskGroup() as both:
        for name in ("first", "second"):
            both.create_task(play(store_url, tmp_path / name))
