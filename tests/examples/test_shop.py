"""The example application works as its README says, and passes its own tests on both databases."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.forks import ROOT
from tests.support.postgres import Databases, free_port
from tests.support.processes import poll_blocking

pytestmark = pytest.mark.heavy

SHOP = ROOT / "examples" / "shop"
COMMANDS = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BINARIES = Path(sys.executable).parent


@pytest.mark.parametrize("server", [None, "pg15"])
def test_the_shops_own_tests_pass(
    server: str | None, postgres_databases: Callable[[str], Databases]
) -> None:
    options = []
    if server is not None:
        options = ["--holdfast-url", postgres_databases(server).url("postgres")]
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            *options,
        ],
        cwd=SHOP,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_readmes_commands_sell_something(tmp_path: Path) -> None:
    provider, web = free_port(), free_port()
    text = (SHOP / "README.md").read_text(encoding="utf-8")
    text = text.replace("8001", str(provider)).replace("8000", str(web))
    *servers, curls, _ = COMMANDS.findall(text)
    environment = {
        **os.environ,
        "PATH": f"{BINARIES}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(SHOP),
        "SHOP_PAYMENTS_URL": f"http://127.0.0.1:{provider}",
    }
    shutil.copy(SHOP / "order.json", tmp_path)
    with ExitStack() as stack:
        for command in servers:
            stack.enter_context(running(command, tmp_path, environment))
        poll_blocking(lambda: is_answered(f"http://127.0.0.1:{provider}/charges"))
        poll_blocking(lambda: is_answered(f"http://127.0.0.1:{web}/"))
        importing, products, order, report = curls.strip().splitlines()
        curl(importing, tmp_path)
        poll_blocking(lambda: curl(products, tmp_path))
        assert "job" in curl(order, tmp_path)
        poll_blocking(lambda: list((tmp_path / "outbox").glob("*.txt")))
        assert curl(report, tmp_path) == {"revenue": "17.80", "sold": {"Fences and Gates": 2}}
        page = urllib.request.urlopen(f"http://127.0.0.1:{web}/").read().decode()
    assert "<title>Shop</title>" in page


@contextmanager
def running(command: str, folder: Path, environment: dict[str, str]) -> Iterator[None]:
    with subprocess.Popen(command.split(), cwd=folder, env=environment) as process:
        try:
            yield
        finally:
            process.terminate()


def curl(command: str, folder: Path) -> Any:
    ran = subprocess.run(
        command, shell=True, cwd=folder, capture_output=True, text=True, check=True
    )
    return json.loads(ran.stdout)


def is_answered(url: str) -> bool:
    try:
        return bool(urllib.request.urlopen(url).status)
    except OSError:
        return False
