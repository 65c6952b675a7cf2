"""`holdfast demo`: what it tells when it can't, and what it leaves behind."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from io import StringIO
from pathlib import Path

import httpx
import pytest
from rich.console import Console

from holdfast.cli.demo import SYSTEMS
from holdfast_systems.demos.frame import open_stage
from holdfast_systems.demos.processes import ProcessFailed
from holdfast_systems.demos.show import forget_settings, show_all
from tests.support.processes import PROGRAM_SECONDS_MAX, WAIT_SECONDS, Process, wait_until

pytestmark = pytest.mark.heavy

NOBODY = "postgresql://somebody:secret@127.0.0.1:1/jobs"
LIVE = {
    "webhooks": "hooks/order-paid",
    "passport": 'title="default"',
    "convert": "invoice-0001.pdf",
    "compute": 'title="demo"',
    "documents": "demo-1",
}
COMMAND = ["-m", "holdfast.cli.main", "demo"]

Demo = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """Where demonstrations put what goes with them."""
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


@pytest.fixture
def demo(tmp_path: Path, scratch: Path) -> Demo:
    def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        own = {"TMPDIR": str(scratch), "PYTHONIOENCODING": "utf-8", **environment}
        return subprocess.run(
            [sys.executable, *COMMAND, *words],
            cwd=tmp_path,
            env={**os.environ, **own},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PROGRAM_SECONDS_MAX,
        )

    return run


@pytest.mark.parametrize("system", ["webhooks", "passport"])
def test_a_database_that_is_not_there_is_told_and_the_logs_are_kept(
    system: str, demo: Demo, tmp_path: Path, scratch: Path
) -> None:
    done = demo(system, "--out", "out", "--database", NOBODY)
    assert done.returncode == 1
    assert "PostgreSQL at 127.0.0.1:1/jobs is not available" in " ".join(done.stdout.split())
    assert f"out{os.sep}logs{os.sep}demo.log" in done.stdout
    assert "Traceback" in (tmp_path / "out/logs/demo.log").read_text(encoding="utf-8")
    logs = [path.read_text(encoding="utf-8") for path in (tmp_path / "out/logs").iterdir()]
    assert "secret" not in done.stdout + done.stderr + "".join(logs)
    assert list(scratch.iterdir()) == []


async def test_a_system_that_fails_does_not_keep_the_next_one_from_its_turn(
    tmp_path: Path,
) -> None:
    console = Console(file=StringIO(), width=100)
    assert not await show_all(["webhooks", "compute"], tmp_path / "out", NOBODY, console)
    assert isinstance(console.file, StringIO)
    overview = console.file.getvalue().partition("Five systems on Holdfast")[2]
    assert [line.split()[1] for line in overview.splitlines() if "failed" in line] == [
        "webhooks", "compute",
    ]  # fmt: skip


def test_settings_of_the_user_are_not_meant_for_a_demonstration(demo: Demo) -> None:
    done = demo(
        "compute",
        HOLDFAST_DATABASE_URL=NOBODY,
        HOLDFAST_LEASE_SECONDS="nonsense",
        HOLDFAST_CONCURRENCY="0",
        DATABASE_URL=NOBODY,
        APP_SERVER_URL="http://127.0.0.1:1/{def}/{ver}",
        JOB_TIMEOUT_SEC="nonsense",
        FAULT_STATUS="502",
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("system", ["compute", "convert", "passport"])
def test_every_setting_of_a_system_is_forgotten(system: str) -> None:
    page = Path(f"docs/systems/{system}.md").read_text(encoding="utf-8")
    section = page.partition("## Settings\n")[2].partition("\n## ")[0]
    names = re.findall(r"`([A-Z]+_[A-Z_]+)(?:` \||=)", section)
    assert len(names) > 3
    # A message is only a hint. Service Bus is forgotten with its connection string.
    kept = {"PATH", *(name for name in names if name.startswith("BPC_") and "_QUEUE" in name)}
    environment = dict.fromkeys([*names, *kept], "?")
    forget_settings(environment)
    assert environment.keys() == kept


@pytest.mark.parametrize(
    ("port", "problem"), [(None, "Address already in use"), ("65536", "ports are from 0 to 65535")]
)
def test_a_port_that_can_not_be_had_is_told_in_one_line(port: str | None, problem: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        asked = port or str(busy.getsockname()[1])
        done = subprocess.run(
            [sys.executable, "-m", "holdfast_systems.demos.receiver", "--port", asked],
            capture_output=True,
            text=True,
            timeout=PROGRAM_SECONDS_MAX,
        )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"holdfast: can't listen on 127.0.0.1:{asked}: {problem}\n"


def test_an_unknown_system_is_told_with_those_that_there_are(demo: Demo) -> None:
    done = demo("weather")
    assert done.returncode == 2
    assert "'weather' is not one of 'webhooks', 'passport'" in done.stderr


@pytest.mark.parametrize(("out", "code"), [("file", 2), ("file/below", 1), ("/proc", 1)])
def test_a_place_that_takes_no_files_is_told_before_anything_starts(
    out: str, code: int, demo: Demo, tmp_path: Path, scratch: Path
) -> None:
    (tmp_path / "file").touch()
    done = demo("webhooks", "--out", out)
    assert (done.returncode, done.stdout) == (code, "")
    assert len(done.stderr.splitlines()) == 1
    assert "is a file" in done.stderr or f"can't write files to {out}" in done.stderr
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("signals", [[signal.SIGINT], [signal.SIGTERM], [signal.SIGINT] * 2])
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_nothing_stays_behind_when_it_is_interrupted(
    signals: list[signal.Signals], tmp_path: Path, scratch: Path
) -> None:
    words = [*COMMAND, "compute", "--out", "out"]
    # Its processes are found by this variable, which they inherit. A server of the demonstration
    # takes a while until it tells its address.
    demo = Process("demo", words, tmp_path, {"TMPDIR": str(scratch)})
    await wait_until(lambda: "appserver" in "".join(processes_in(scratch)), "a server that starts")
    for which in signals:
        demo.signal(which)
    assert await demo.ended() == 130, demo.text
    assert "holdfast: interrupted" in demo.text
    await wait_until(lambda: not processes_in(scratch), lambda: f"gone: {processes_in(scratch)}")
    assert os.listdir(scratch) == []


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_in_the_background_of_a_script_it_can_be_terminated(
    tmp_path: Path, scratch: Path
) -> None:
    """There, a shell has it ignore Ctrl-C."""
    ignoring = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN);"
        " from holdfast.cli.main import run; sys.exit(run(['demo', *sys.argv[1:]]))"
    )
    words = ["-c", ignoring, "compute", "--out", "out"]
    demo = Process("demo", words, tmp_path, {"TMPDIR": str(scratch)})
    await wait_until(lambda: "appserver" in "".join(processes_in(scratch)), "a server that starts")
    demo.signal(signal.SIGTERM)
    assert await demo.ended() == 130, demo.text
    await wait_until(lambda: not processes_in(scratch), lambda: f"gone: {processes_in(scratch)}")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_nothing_stays_behind_when_it_is_killed(tmp_path: Path, scratch: Path) -> None:
    words = [*COMMAND, "compute", "--out", "out"]
    demo = Process("demo", words, tmp_path, {"TMPDIR": str(scratch)})
    # It starts one server after the other: the first one serves already.
    await wait_until(
        lambda: "serve holdfast_systems" in "".join(processes_in(scratch)), "two servers"
    )
    demo.signal(signal.SIGKILL)
    await demo.ended()
    await wait_until(lambda: not processes_in(scratch), lambda: f"gone: {processes_in(scratch)}")
    assert os.listdir(scratch) == []


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_an_interrupt_while_it_ends_changes_nothing(tmp_path: Path, scratch: Path) -> None:
    demo = Process(
        "demo", [*COMMAND, "compute", "--out", "out"], tmp_path, {"TMPDIR": str(scratch)}
    )
    await wait_until(lambda: "appserver" in "".join(processes_in(scratch)), "a server that starts")
    demo.signal(signal.SIGINT)
    await wait_until(lambda: "holdfast: interrupted" in demo.text, "interrupted")
    demo.signal(signal.SIGINT)
    assert await demo.ended() == 130, demo.text


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_all_systems_run_on_one_service_that_serves_on_until_ctrl_c(
    tmp_path: Path, scratch: Path
) -> None:
    words = [*COMMAND, "all", "--out", "out", "--serve"]
    demo = Process("demo", words, tmp_path, {"TMPDIR": str(scratch)})
    await wait_until(lambda: "Work of all" in demo.printed, lambda: demo.printed, 2 * WAIT_SECONDS)
    for system in SYSTEMS:
        assert re.search(rf"{system} .* succeeded", demo.printed), demo.printed
    command = next(line for line in demo.output if "curl -H" in line)
    _, _, key, address = shlex.split(command)
    async with httpx.AsyncClient(headers=dict([key.split(": ")])) as client:
        answer = await client.get(address)
    names = {job["name"] for job in answer.json()["jobs"]}
    assert {"COMPUTE", "convert"} <= names
    await dashboard_fills(address.removesuffix("/v1/jobs"), key.rpartition(" ")[2])
    demo.signal(signal.SIGINT)
    assert await demo.ended() == 0, demo.text
    await wait_until(lambda: not processes_in(scratch), lambda: f"gone: {processes_in(scratch)}")
    assert os.listdir(scratch) == []


async def dashboard_fills(address: str, key: str) -> None:
    """Each system gets new work, and shows it."""
    async with httpx.AsyncClient(base_url=address, timeout=WAIT_SECONDS) as client:
        headers = {"origin": address, "sec-fetch-site": "same-origin"}
        answer = await client.post("/ui/login", data={"key": key}, headers=headers)
        client.headers["cookie"] = answer.headers["set-cookie"].partition(";")[0]
        for system, mark in LIVE.items():
            await wait_until(partial(shows, client, system, mark), f"work for {system}")


async def shows(client: httpx.AsyncClient, system: str, mark: str) -> bool:
    page = await client.get(f"/ui/systems/{system}")
    assert page.status_code == 200, page.text
    return mark in page.text


async def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    async with open_stage("passport", tmp_path / "out") as stage:
        with pytest.raises(ProcessFailed, match=r"gateway did not start: .*No module named"):
            await stage.start("gateway", "holdfast_systems.no_such_module")


async def test_an_error_outside_of_the_steps_is_a_failure_of_its_own(tmp_path: Path) -> None:
    async with open_stage("passport", tmp_path / "out") as stage:
        with stage.step("all goes well"):
            pass
        assert stage.succeeded
        stage.failed(ZeroDivisionError("division by zero"))
        assert [step.failures for step in stage.steps] == [
            [],
            ["ZeroDivisionError: division by zero"],
        ]
        assert not stage.succeeded


def processes_in(folder: Path) -> list[str]:
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            environment = (place / "environ").read_bytes()
            command = (place / "cmdline").read_bytes()
        except OSError:
            continue  # it has ended, or is somebody else's
        if f"TMPDIR={folder}".encode() in environment.split(b"\0"):
            found.append(command.replace(b"\0", b" ").decode())
    return found
