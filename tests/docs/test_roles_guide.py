"""The guide to roles is complete: its commands, run as written on an empty database, print what it
shows."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.docs.test_examples import BLOCK
from tests.support.console import Console, steps
from tests.support.forks import ROOT
from tests.support.roles import administered
from tests.support.services import missing

ADDRESS = "localhost/shop"


@pytest.mark.heavy
async def test_the_commands_of_the_guide_print_what_it_shows(
    postgres_url: str, tmp_path: Path
) -> None:
    if shutil.which("psql") is None:
        missing("psql is not installed")
    text = (ROOT / "docs" / "guides" / "roles.md").read_text(encoding="utf-8")
    first = next(BLOCK.finditer(text))
    (tmp_path / "app.py").write_text(first["code"], encoding="utf-8")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    console = Console(tmp_path, {"PATH": path, "PYTHONPATH": str(ROOT / "src")})
    async with administered(postgres_url) as roles:
        here = roles.admin_url.rpartition("@")[2]
        text = text.replace(ADDRESS, here).replace("shop_", f"{roles.prefix}_")
        for step in steps(text.replace("--prefix shop ", f"--prefix {roles.prefix} ")):
            console.run(step)
