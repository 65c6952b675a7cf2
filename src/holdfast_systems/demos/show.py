"""Run demonstrations and show what happened: `holdfast demo`."""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from holdfast_systems.demos.environment import forget_settings
from holdfast_systems.demos.frame import Stage, open_stage

__all__ = ["forget_settings", "make_console", "show"]

PIPE_COLUMNS = 120


def make_console() -> Console:
    """A pipe gets a table of fixed width, and no colors."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # not every terminal has every character
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=PIPE_COLUMNS)


async def show(systems: Sequence[str], out: Path, database: str | None, console: Console) -> bool:
    """Run them one after the other; answer whether all is well."""
    stages = []
    for system in systems:
        folder = out if len(systems) == 1 else out / system
        stages.append(await _run(system, folder, database, console))
    if len(stages) > 1:
        console.print("Five systems on Holdfast", style="bold")
        console.print(_overview(stages))
    return all(stage.succeeded for stage in stages)


async def _run(system: str, out: Path, database: str | None, console: Console) -> Stage:
    run: Callable[[Stage], Awaitable[None]]
    run = import_module(f"holdfast_systems.demos.{system}").run
    with console.status(system) as status:
        async with open_stage(system, out, database) as stage:
            stage.on_step = lambda step: status.update(f"{system}: {escape(step.what)}")
            with _logged(stage.folder / "demo.log"):
                try:
                    await run(stage)
                except Exception as error:
                    stage.failed(error)
                    logging.getLogger("holdfast").debug("the demonstration failed", exc_info=error)
            if not stage.succeeded:
                _keep_logs(stage)
    console.print(stage.system, style="bold")
    console.print(_table(stage))
    return stage


@contextmanager
def _logged(path: Path) -> Iterator[None]:
    """What the engine logs goes to a file; the table is what people look at."""
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
    for path in stage.folder.glob("*.log"):
        stage.made(Path(shutil.copy(path, logs)), "a log, for what went wrong")


def _table(stage: Stage) -> Table:
    table = Table()
    table.add_column("step")
    table.add_column("outcome")
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
    table = Table()
    for column in ("system", "steps", "files", "outcome"):
        table.add_column(column)
    table.add_column("time", justify="right")
    for stage in stages:
        outcome = "[green]all is well[/]" if stage.succeeded else "[red]failed[/]"
        seconds = sum(step.seconds for step in stage.steps)
        files = f"{len(stage.files)} in {_shown(stage.out)}"
        table.add_row(
            stage.system, str(len(stage.steps)), escape(files), outcome, f"{seconds:.1f} s"
        )
    return table


def _shown(path: Path) -> str:
    """The path as one would type it here."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
