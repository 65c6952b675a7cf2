"""`python -m chaos --seconds 600 --seed 7`: inject random faults and account for every job.

Both stores run side by side. The exit code is 1 if a promise was broken; then the logs and the
ledger stay where the last line says.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from chaos.faults import HEAVY, all_kinds
from chaos.report import report
from chaos.run import ChaosRun, Pace

STORES = ("sqlite", "postgresql")
TELL_SECONDS = 1.0


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    os.environ.setdefault("PGSSLMODE", "disable")
    folder = Path(tempfile.mkdtemp(prefix="holdfast-chaos-"))
    print(f"seed {options.seed}; logs and ledger: {folder}", flush=True)
    stores = STORES if options.store == "both" else (options.store,)
    runs = []
    for store in stores:
        (folder / store).mkdir()
        runs.append(ChaosRun(store, folder / store, options.seed, options.faults))
    with suppress(KeyboardInterrupt, asyncio.CancelledError):
        asyncio.run(run_all(runs, options.seconds))
        outcomes = [run.outcome for run in runs]
        print(report(outcomes, options.seed, options.seconds), flush=True)
        broken = any(outcome.findings for outcome in outcomes)
        if broken:
            print(f"logs and ledger: {folder}; run again: {again(options)}")
        elif not options.keep:
            shutil.rmtree(folder)
        return int(broken)
    return 1


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="how long to inject faults")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"))
    parser.add_argument("--store", choices=["both", *STORES], default="both")
    parser.add_argument("--faults", type=kinds, default=all_kinds(), help=", ".join(all_kinds()))
    parser.add_argument("--keep", action="store_true", help="always keep logs and ledger")
    parser.add_argument("--light", action="store_true", help=f"without {', '.join(HEAVY)}")
    options = parser.parse_args(arguments)
    if options.light:
        options.faults = [kind for kind in options.faults if kind not in HEAVY]
    return options


def kinds(text: str) -> list[str]:
    chosen = [kind.strip() for kind in text.split(",")]
    if unknown := set(chosen) - set(all_kinds()):
        raise argparse.ArgumentTypeError(f"unknown fault {min(unknown)!r}")
    return chosen


def again(options: argparse.Namespace) -> str:
    words = [f"--seconds {options.seconds:g}", f"--seed {options.seed}", f"--store {options.store}"]
    return "python -m chaos " + " ".join(words)


async def run_all(runs: Sequence[ChaosRun], seconds: float) -> None:
    """Run them in parallel. Whatever ends this also ends everything they started."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    telling = asyncio.create_task(tell(runs))
    pace = Pace(len(runs), seconds)
    try:
        async with asyncio.TaskGroup() as group:
            for run in runs:
                group.create_task(run.run(pace))
    finally:
        telling.cancel()


async def tell(runs: Sequence[ChaosRun]) -> None:
    """Show a progress line if stderr is a terminal."""
    while sys.stderr.isatty():
        parts = []
        for run in runs:
            seen = run.outcome
            left = max(0.0, seen.until - time.monotonic())
            when = f"{left:.0f} s left" if seen.phase == "faults" else seen.phase
            parts.append(
                f"{seen.store}: {when}, {seen.acknowledged:,} acknowledged,"
                f" {seen.starts:,} starts, {len(seen.faults)} faults"
            )
        print(f"\r\x1b[K{' | '.join(parts)}", end="", file=sys.stderr, flush=True)
        await asyncio.sleep(TELL_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
