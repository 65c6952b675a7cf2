"""14. A signal ends a worker that is the first process of a container, and it buries orphans."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import State
from tests.promises.stage import Stage
from tests.promises.stopping import Stopping
from tests.support.processes import Process, wait_until

UNSHARE = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
CONTAINER = [*UNSHARE, "--mount-proc"]
# The test's own process becomes the one that waits outside of the container.
ENTER = "import os, sys; os.execvp(sys.argv[1], sys.argv[1:])"


def is_possible() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*CONTAINER, "true"], capture_output=True, check=False).returncode == 0


pytestmark = [
    pytest.mark.skipif(not is_possible(), reason="there can be no container here"),
    pytest.mark.heavy,
    pytest.mark.long,
]


async def first_process(container: Process) -> int:
    """Its id, as it is known outside."""
    await wait_until(lambda: child(container.pid), lambda: f"started: {container.text}")
    return int(child(container.pid))


def child(pid: int) -> str:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")


@pytest.mark.parametrize("options", [[], ["--processes=1"]], ids=["alone", "supervisor"])
@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_the_first_process_buries_orphans_and_is_ended_by_a_signal(
    stage: Stage, options: list[str]
) -> None:
    job = await Stopping(stage.hf).leave_an_orphan.enqueue()
    inside = ["-c", ENTER, *CONTAINER, sys.executable]
    container = stage.worker(*options, app="stopping:hf", inside=inside, grace_seconds=0)
    first = await first_process(container)
    await stage.noted("buried", job.id)
    os.kill(first, signal.SIGTERM)
    assert await container.ended() == 0
    found = await stage.hf.get(job.id)
    assert (found.state, found.attempts, found.releases) == (State.QUEUED, 0, 1)
