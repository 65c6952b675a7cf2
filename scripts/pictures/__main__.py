"""Regenerate the pictures in the docs: `make pictures`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scripts.pictures.drawing import draw
from scripts.pictures.recording import Recording

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
SHOP = Path(__file__).parent / "shop.py"


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = surroundings(folder)
        with working(folder, environment):
            write("top", record_top(folder, environment), "queues, workers and failures, live")
        write(
            "dead", record_dead(folder, environment), "what went wrong, and another chance for it"
        )


def surroundings(folder: Path) -> dict[str, str]:
    """Put the shop into the folder; return the environment for its processes."""
    (folder / "shop.py").write_text(SHOP.read_text(encoding="utf-8"), encoding="utf-8")
    return {
        **{key: value for key, value in os.environ.items() if key != "NO_COLOR"},
        "HOLDFAST_DATABASE_URL": "sqlite:///jobs.db",
        "PYTHONPATH": os.pathsep.join([str(folder), *sys.path]),
    }


@contextmanager
def working(
    folder: Path, environment: dict[str, str], *, seconds: float = 90, share: float = 1
) -> Iterator[None]:
    """A shop with customers and two worker processes."""
    words = [sys.executable, "-m", "holdfast.cli.main", "worker", "shop:hf", "--processes", "2"]
    quiet: dict[str, Any] = {"cwd": folder, "env": environment, "stderr": subprocess.DEVNULL}
    started = [
        subprocess.Popen([sys.executable, "shop.py", str(seconds), str(share)], **quiet),
        subprocess.Popen([*words, "--concurrency", "12"], stdout=subprocess.DEVNULL, **quiet),
    ]
    time.sleep(12)
    try:
        yield
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait(30)


def record_top(folder: Path, environment: dict[str, str]) -> Recording:
    recording = Recording(folder, environment, lines=16)
    session = recording.start(["top", "--interval", "1"])
    session.wait_for(14)
    session.watch(5, 1)
    session.press("2")
    session.watch(3, 1)
    session.press("3")
    session.watch(2, 1)
    session.press("jj ")
    session.watch(1, 1)
    session.press("\r")
    session.watch(4, 1)
    session.press("\x1b")
    session.watch(1, 1)
    session.press(" 1")  # The last frame is the one that stays where nothing can move.
    session.watch(3, 1)
    session.press("q")
    return recording


def record_dead(folder: Path, environment: dict[str, str]) -> Recording:
    recording = Recording(folder, environment, lines=22)
    told = recording.run(["dead", "groups"], shown_seconds=3)
    found = re.search(r"([0-9a-f]{12}) +resize", told)
    assert found is not None, told
    fingerprint = ["--fingerprint", found[1]]
    recording.run(["dead", "list", *fingerprint, "--limit", "3"], shown_seconds=3)
    recording.run(["dead", "requeue", "--all", *fingerprint, "--dry-run"], shown_seconds=5)
    return recording


def write(name: str, recording: Recording, description: str) -> None:
    title = f"holdfast {name}"
    path = PICTURES / f"{name}.svg"
    path.write_text(draw(recording.frames, title, description), encoding="utf-8")
    print(f"{path.relative_to(PICTURES.parents[1])}: {len(recording.frames)} frames")


if __name__ == "__main__":
    main()
