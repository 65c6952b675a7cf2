"""`holdfast servicebus-local`: a real process, its signals, and its errors in one line."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from tests.support.processes import Process, wait_until
from tests.support.servicebus import receive_one, text

Start = Callable[..., Process]

WITHOUT_PROTON = "import sys; sys.modules['proton'] = None; import runpy;"
AS_A_COMMAND = "runpy.run_module('holdfast.cli.main', run_name='__main__', alter_sys=True)"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Process] = []

    def run(*options: str, words: tuple[str, ...] = ("-m", "holdfast.cli.main")) -> Process:
        command = [*words, "servicebus-local", *options]
        started.append(Process(f"bus-{len(started)}", command, tmp_path, {}))
        return started[-1]

    yield run
    for process in started:
        if process.code is None:
            process.kill()


async def connection_string(process: Process) -> str:
    await wait_until(lambda: "serving" in process.text, lambda: f"serving:\n{process.text}")
    (line,) = process.output
    return line


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_the_command_serves_until_it_is_told_to_stop(
    start: Start, number: signal.Signals
) -> None:
    process = start("--port=0", "--queue=jobs", "--queue=mail")
    url = await connection_string(process)
    with ServiceBusClient.from_connection_string(url) as client:
        for queue in ("jobs", "mail"):
            with client.get_queue_sender(queue) as sender:
                sender.send_messages(ServiceBusMessage(queue))
            with client.get_queue_receiver(queue) as receiver:
                assert text(receive_one(receiver)) == queue
    process.signal(number)
    assert await process.ended() == 0
    assert "Traceback" not in process.text


async def test_a_port_that_is_taken_is_one_line(start: Start) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        process = start(f"--port={taken.getsockname()[1]}")
        assert await process.ended() == 1
    (line,) = process.text.splitlines()
    assert "another port" in line


async def test_options_beyond_their_limits_are_one_line(start: Start) -> None:
    process = start("--port=0", "--lock-seconds=1000")
    assert await process.ended() == 1
    assert process.text.strip() == "holdfast: lock_seconds must be between 0.001 and 300"


async def test_without_the_extra_it_says_what_to_install(start: Start) -> None:
    process = start(words=("-c", WITHOUT_PROTON + AS_A_COMMAND))
    assert await process.ended() == 1
    (line,) = process.text.splitlines()
    assert "pip install 'holdfast[servicebus-local]'" in line
