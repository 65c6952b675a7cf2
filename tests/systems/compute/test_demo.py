"""The demonstration, with its real processes."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from holdfast_systems.demos.compute import run
from holdfast_systems.demos.frame import open_stage

pytestmark = pytest.mark.heavy


@pytest.mark.parametrize("store_url", ["sqlite", "pg15"], indirect=True)
async def test_the_demonstration_leaves_a_result_and_a_picture(
    store_url: str, tmp_path: Path
) -> None:
    async with open_stage("compute", tmp_path / "out", store_url) as stage:
        await run(stage)
        failures = [(step.what, step.failures) for step in stage.steps if step.failures]
        assert failures == []
    assert [made.path.name for made in stage.files] == ["result.json", "house.svg"]
    outputs = json.loads((tmp_path / "out/result.json").read_text(encoding="utf-8"))
    picture = ElementTree.parse(tmp_path / "out/house.svg").getroot()
    texts = {text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")}
    assert f"{outputs['results'][0]['score']:.1f}" in texts
