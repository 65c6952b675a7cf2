"""The command `holdfast`, run beside a test's own event loop."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

from tests.support.processes import PROGRAM_SECONDS_MAX


async def command(*words: str, url: str) -> str:
    """Run it on this database; answer what it printed."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "holdfast.cli.main", *words],
        env={**kept, "HOLDFAST_DATABASE_URL": url},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS_MAX,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout or done.stderr
