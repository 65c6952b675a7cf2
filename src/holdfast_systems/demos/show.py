"""Run demos and show what happened: `holdfast demo`."""

from __future__ import annotations

import asyncio
import logging
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from io import TextIOWrapper
from itertools import chain
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from holdfast_systems.demos.frame import Stage, open_stage
from holdfast_systems.demos.live import EVERY_SECONDS, keep_arriving
from holdfast_systems.demos.processes import ProcessFailed, free_port
from holdfast_systems.demos.shared import make_key, start
from holdfast_systems.passport.queue import queue_trouble

PIPE_COLUMNS = 120
PORT = 8000
_PREFIXES = ("BPC_", "FAULT_", "GATEWAY_", "HOLDFAST_", "SALESFORCE_", "WORKER_")
# A message is only a hint, so these can do no harm.
_KEPT = ("BPC_QUEUE_", "BPC_HEALTH_REQUIRE_QUEUE")
_NAMES = {
    "APP_SERVER_URL",
    "COMPUTE_RETENTION_DAYS",
    "CONTRACTS_DIR",
    "DATABASE_URL",
    "FAIL_ONCE",
    "JOB_TIMEOUT_SEC",
    "LOCK_RENEW_SEC",
    "MAX_DELIVERY_COUNT",
    "RESULTS_DIR",
    "RESULTS_KEPT_SEC",
    "RETRY_MAX_ATTEMPTS",
    "SERVICEBUS_CONN",
    "SERVICEBUS_QUEUE",
    "UPLOADS_DIR",
    "UPLOADS_KEPT_SEC",
}


def forget_settings(environment: MutableMapping[str, str]) -> None:
    """Remove every setting of the engine and the systems: a demo must never touch your database."""
    for name in [*environment]:
        is_setting = name in _NAMES or name.startswith(_PREFIXES)
        if is_setting and not name.startswith(_KEPT):
            del environment[name]


def make_console() -> Console:
    """Make a console; a pipe gets a fixed width and no colors."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # not every terminal has every character
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=PIPE_COLUMNS)


async def show(system: str, out: Path, database: str | None, console: Console) -> bool:
    """Run one demo; return whether it succeeded."""
    return (await _run(system, out, database, console)).succeeded


async def show_all(
    systems: Sequence[str],
    out: Path,
    database: str | None,
    console: Console,
    *,
    keeps_serving: bool = False,
) -> bool:
    """Run the demos one after the other on one service; return whether all of them succeeded.

    With `keeps_serving`, the service then stays up until it is interrupted.
    """
    async with open_stage("service", out, database) as shared:
        with console.status("starting the service"):
            try:
                await start(shared, free_port(PORT) if keeps_serving else 0)
            except ProcessFailed as error:
                console.print(escape(str(error)), style="red")
                return False
        stages = [await _run(system, out / system, database, console, shared) for system in systems]
        console.print(f"Five systems on Holdfast, served at {shared.api.address}", style="bold")
        console.print(_overview(stages))
        if trouble := queue_trouble(shared.api.log):
            console.print(f"The queue is unavailable, workers poll: {escape(trouble)}")
        if keeps_serving:
            await _serve_on(shared, console)
        return all(stage.succeeded for stage in stages)


async def _serve_on(shared: Stage, console: Console) -> None:
    key, address = await make_key(shared), shared.api.address
    console.print(f"\nThe dashboard is at {address}/", style="bold")
    console.print("Log in with this key, or look at the jobs with curl:")
    for line in (key, f"curl -H 'Authorization: Bearer {key}' {address}/v1/jobs"):
        console.print(f"  {line}", soft_wrap=True, markup=False)
    console.print(
        f"Work of all five systems arrives, a piece every {EVERY_SECONDS:g} seconds, until you"
        " press Ctrl-C."
    )
    arriving = asyncio.create_task(
        keep_arriving(shared, key, lambda text: console.print(escape(text), style="red"))
    )
    with suppress(asyncio.CancelledError):  # Ctrl-C is how this ends well
        try:
            await asyncio.wait(
                {asyncio.create_task(shared.api.ended()), arriving},
                return_when=asyncio.FIRST_COMPLETED,
            )
            if arriving.done():
                arriving.result()
            console.print(
                f"the service has ended; its log says: {shared.api.last_line}", style="red"
            )
        finally:
            arriving.cancel()
            await asyncio.gather(arriving, return_exceptions=True)


async def _run(
    system: str, out: Path, database: str | None, console: Console, shared: Stage | None = None
) -> Stage:
    run: Callable[[Stage], Awaitable[None]]
    run = import_module(f"holdfast_systems.demos.{system}").run
    with console.status(system) as status:
        async with open_stage(system, out, database, shared) as stage:
            stage.on_step = lambda step: status.update(f"{system}: {escape(step.what)}")
            with _logged(stage.folder / "demo.log"):
                try:
                    await run(stage)
                except Exception as error:
                    stage.failed(error)
                    logging.getLogger("holdfast").debug("the demo failed", exc_info=error)
            if not stage.succeeded:
                _keep_logs(stage)
    console.print(stage.system, style="bold")
    console.print(_table(stage))
    return stage


@contextmanager
def _logged(path: Path) -> Iterator[None]:
    """Send the engine's log to a file, so that it doesn't garble the table."""
    logger = logging.getLogger("holdfast")
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    before = logger.propagate, logger.level
    logger.propagate = False
    logger.setLevel(logging.DEBUG)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()
        logger.propagate, logger.level = before


def _keep_logs(stage: Stage) -> None:
    logs = stage.out / "logs"
    logs.mkdir(exist_ok=True)
    folders = [stage.folder] if stage.shared is None else [stage.shared.folder, stage.folder]
    for path in chain.from_iterable(folder.glob("*.log") for folder in folders):
        stage.made(Path(shutil.copy(path, logs)), "log; look here for the cause")


def _table(stage: Stage) -> Table:
    table = Table("step", "outcome")
    table.add_column("time", justify="right")
    for step in stage.steps:
        mark = "[red]✗[/]" if step.failures else "[green]✓[/]"
        failed = [f"[red]{escape(failure)}[/]" for failure in step.failures]
        outcome = "\n".join([escape(step.outcome), *failed] if step.outcome else failed)
        table.add_row(f"{mark} {escape(step.what)}", outcome, f"{step.seconds:.2f} s")
    table.add_section()
    for made in stage.files:
        table.add_row(f"[cyan]{escape(_shown(made.path))}[/]", escape(made.what), "")
    return table


def _overview(stages: Sequence[Stage]) -> Table:
    table = Table("system", "steps", "files", "outcome")
    table.add_column("time", justify="right")
    for stage in stages:
        outcome = "[green]succeeded[/]" if stage.succeeded else "[red]failed[/]"
        seconds = sum(step.seconds for step in stage.steps)
        files = f"{len(stage.files)} in {_shown(stage.out)}"
        table.add_row(
            stage.system, str(len(stage.steps)), escape(files), outcome, f"{seconds:.1f} s"
        )
    return table


def _shown(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
