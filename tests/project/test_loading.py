"""What a process imports: memory and start-up time are mostly modules, and modules can be counted.

`import holdfast` and the command line are for everybody; a worker runs for months in many copies.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

from holdfast import Holdfast
from holdfast.cli.commands import COMMANDS
from holdfast.worker.processes import warden
from tests.support.processes import PATH, PROGRAM_SECONDS_MAX

# What most programs have no use for. With what it imports itself, each takes 0.1 to 2 MB.
SELDOM = {
    "aio_pika",
    "aiohttp",
    "argparse",
    "azure",
    "cryptography",
    "difflib",
    "email",
    "fastapi",
    "http",
    "importlib.metadata",
    "importlib.resources",
    "jinja2",
    "multiprocessing",
    "opentelemetry",
    "pickle",
    "prometheus_client",
    "psycopg",
    "pydantic",
    "rich",
    "sqlalchemy",
    "sysconfig",
    "tomllib",
    "xml",
    "zipfile",
    "holdfast.api",
    "holdfast.dashboard",
    "holdfast.domain.diagnosis.judge",
    "holdfast.operations.audit",
    "holdfast.operations.bulk",
    "holdfast.operations.dead",
    "holdfast.operations.jobs",
    "holdfast.operations.keys",
    "holdfast.operations.roles",
    "holdfast.servicebus_local",
    "holdfast.testing",
    "holdfast.webhooks",
}
OF_ASYNCPG = {"asyncpg"}
OF_SQLITE = {"sqlite3"}
OF_COMMANDS = {"click", "holdfast.cli"}
OF_WORKERS = {"uvloop", "holdfast.worker.worker"}
# An unknown variable would be compared with each known one, for which it may be mistaken.
UNSET = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
MESSAGE = "print(__import__('json').dumps(sorted(__import__('sys').modules)))"


def loaded(program: str, *, path: Path | None = None) -> set[str]:
    """The modules of a process that runs this program, which prints them as its last line."""
    ran = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {PATH!r}\n{textwrap.dedent(program)}"],
        cwd=path,
        env=UNSET,
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS_MAX,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return set(json.loads(ran.stdout.splitlines()[-1]))


BARE = loaded(MESSAGE)


def assert_light(modules: set[str], unwanted: set[str], modules_max: int) -> None:
    """Fail if one of the unwanted packages or modules is there, or too many of others."""
    within = {name for name in modules for each in unwanted if f"{name}.".startswith(f"{each}.")}
    assert within == set()
    assert len(modules - BARE) <= modules_max


def test_importing_the_package_loads_nothing() -> None:
    modules = loaded(f"import holdfast\n{MESSAGE}")
    assert {name.partition(".")[0] for name in modules - BARE} <= {
        "holdfast",
        "importlib",
        "warnings",
    }
    assert {name for name in modules if name.startswith("holdfast")} == {"holdfast"}


def test_an_app_loads_no_store_no_worker_and_no_operations() -> None:
    modules = loaded(f"from holdfast import Context, Holdfast, Retry\n{MESSAGE}")
    unwanted = SELDOM | OF_ASYNCPG | OF_SQLITE | OF_COMMANDS | OF_WORKERS
    unwanted |= {"pathlib", "holdfast.transactions.drivers.ways"}
    assert_light(modules, unwanted, 250)


def test_the_list_of_commands_loads_no_command() -> None:
    modules = loaded(f"""
        from holdfast.cli.main import run
        assert run(["--help"]) == 0
        {MESSAGE}
    """)
    unwanted = SELDOM | OF_ASYNCPG | OF_SQLITE | OF_WORKERS | {"asyncio", "msgspec", "holdfast.app"}
    assert_light(modules, unwanted | {module for module, _ in COMMANDS.values()}, 85)


async def test_a_worker_loads_only_what_it_runs(store_url: str, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        textwrap.dedent(f"""
        from holdfast import Holdfast

        hf = Holdfast({store_url!r})

        @hf.job
        async def tell() -> None:
            {MESSAGE}
    """)
    )
    async with Holdfast(store_url) as hf:

        @hf.job
        async def tell() -> None: ...

        await tell.enqueue()
    modules = loaded(
        """
        from holdfast.cli.main import run
        run(["worker", "app:hf", "--until-empty", "--log-level", "error"])
        """,
        path=tmp_path,
    )
    assert "holdfast.transactions.drivers.ways" in modules  # before an upgrade can replace it
    on_sqlite = store_url.startswith("sqlite:")
    assert_light(modules, SELDOM | (OF_ASYNCPG if on_sqlite else OF_SQLITE), 395)


def test_the_warden_loads_hardly_more_than_an_interpreter() -> None:
    folder = str(Path(warden.__file__).parent)
    program = f"import sys; sys.path.append({folder!r}); import warden; print(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS_MAX,
        check=True,
    )
    modules = set(ran.stdout.split())
    assert modules & {"collections", "contextlib", "enum", "functools", "signal", "typing"} == set()
    assert "warden" in modules
