"""The command `holdfast`, run to its end."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.processes import PROGRAM_SECONDS_MAX, Process


def run_command(
    *words: str,
    folder: Path,
    url: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run it in this folder and on this database; return its output and exit code."""
    variables = {**({"HOLDFAST_DATABASE_URL": url} if url else {}), **(environment or {})}
    with TemporaryDirectory() as written:
        process = Process(
            "holdfast", ["-m", "holdfast.cli.main", *words], folder, variables, Path(written)
        )
        try:
            code = process.wait(PROGRAM_SECONDS_MAX)
        finally:
            process.kill()
        return subprocess.CompletedProcess(words, code, process.printed, process.text)


async def command(*words: str, url: str) -> str:
    """Run it on this database without blocking the event loop; return its output."""
    done = await asyncio.to_thread(run_command, *words, folder=Path.cwd(), url=url)
    assert done.returncode == 0, done.stderr
    return done.stdout or done.stderr
