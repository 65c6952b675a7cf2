"""What the examples of the cookbook can't show by themselves."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from holdfast import Holdfast
from tests.docs.test_examples import BLOCK, LINK
from tests.support.forks import ROOT

COOKBOOK = ROOT / "docs" / "cookbook"


def test_the_index_lists_every_recipe() -> None:
    text = (COOKBOOK / "index.md").read_text(encoding="utf-8")
    recipes = {page.name for page in COOKBOOK.glob("*.md")} - {"index.md"}
    assert recipes <= {target for target, _ in LINK.findall(text)}


def test_the_nightly_script_enqueues_one_job_a_day(tmp_path: Path, store_url: str) -> None:
    page = (COOKBOOK / "nightly.md").read_text(encoding="utf-8")
    jobs = next(BLOCK.finditer(page))["code"].replace("sqlite:///shop.db", store_url)
    (tmp_path / "nightly_jobs.py").write_text(jobs, encoding="utf-8")
    (script,) = re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    here = script.replace("/srv/shop", str(tmp_path))
    here = here.replace(".venv/bin/holdfast", f"{sys.executable} -m holdfast")
    environment = {**os.environ, "HOLDFAST_APP": "nightly_jobs:hf", "PYTHONPATH": str(tmp_path)}
    command = ["sh", "-c", here]
    first, again = [subprocess.check_output(command, env=environment) for _ in range(2)]
    assert first == again
    hf = Holdfast(store_url)
    (job,) = hf.jobs.list_sync().jobs
    hf.close_sync()
    assert job.name == "nightly_report"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", job.arguments["day"])
