"""Wake-ups between processes on one SQLite file: private, never in the way, and mended."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import stat
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import pytest

from holdfast.testing.conformance.wakeups import Ear
from holdfast.wakeups.local import LocalListener, LocalSignals
from holdfast.wakeups.protocol import Wakeup

JOB = UUID("018f0000-0000-7000-8000-000000000001")
SENDER = """
import sys
from holdfast.wakeups.local import LocalSignals
from holdfast.wakeups.protocol import Wakeup
LocalSignals(sys.argv[1]).send([Wakeup(queue="from afar")])
"""


@pytest.fixture
def database(tmp_path: Path) -> str:
    return str(tmp_path / "jobs.db")


def has_directory(signals: LocalSignals) -> bool:
    return os.path.exists(signals.directory)


async def listening(signals: LocalSignals, ear: Ear) -> LocalListener:
    listener = signals.listen(ear)
    assert listener is not None
    return listener


async def test_a_wakeup_arrives_as_it_was_sent(database: str) -> None:
    signals, ear = LocalSignals(database), Ear()
    listener = await listening(signals, ear)
    for wakeup in (Wakeup(queue="größe"), Wakeup(queue="c:odd"), Wakeup(canceled=JOB), Wakeup()):
        signals.send([wakeup])
        assert await ear.until(wakeup) == []
    await listener.close()
    signals.close()


async def test_another_process_is_heard(database: str) -> None:
    ear = Ear()
    listener = await listening(LocalSignals(database), ear)
    sender = await asyncio.create_subprocess_exec(sys.executable, "-c", SENDER, database)
    assert await sender.wait() == 0
    assert await ear.until(Wakeup(queue="from afar")) == []
    await listener.close()


def test_two_names_of_one_file_are_one_database(database: str, tmp_path: Path) -> None:
    Path(database).touch()
    (tmp_path / "alias.db").symlink_to(database)
    assert LocalSignals(str(tmp_path / "alias.db")).directory == LocalSignals(database).directory
    assert LocalSignals(str(tmp_path / "else.db")).directory != LocalSignals(database).directory


async def test_nobody_but_the_user_can_send(database: str) -> None:
    signals = LocalSignals(database)
    listener = await listening(signals, Ear())
    for directory in (signals.directory, os.path.dirname(signals.directory)):
        assert stat.S_IMODE(os.stat(directory).st_mode) == 0o700
    await listener.close()


async def test_a_directory_that_others_can_write_is_not_used(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    signals = LocalSignals(database)
    os.makedirs(os.path.dirname(signals.directory), 0o700, exist_ok=True)
    os.mkdir(signals.directory)
    os.chmod(signals.directory, 0o777)
    with caplog.at_level(logging.WARNING, "holdfast"):
        assert signals.listen(Ear()) is None
    assert "not a directory that only this user can access" in caplog.text
    os.rmdir(signals.directory)


class SignalsAt(LocalSignals):
    def __init__(self, database: str, home: Path, directory: Path) -> None:
        super().__init__(database)
        self._home, self.directory = str(home), str(directory)


@pytest.mark.parametrize("planted", ["home", "directory"])
def test_a_sender_leaves_alone_what_somebody_else_has_put_there(
    database: str, tmp_path: Path, planted: str
) -> None:
    home = tmp_path / "home"
    directory = home / "directory"
    signals = SignalsAt(database, home, directory)
    theirs = tmp_path / "theirs"
    valuable = theirs / ("valuable" if planted == "directory" else f"{directory.name}/valuable")
    valuable.parent.mkdir(0o700, parents=True)
    valuable.touch()
    theirs.chmod(0o700)
    if planted == "directory":
        home.mkdir(0o700)
        directory.symlink_to(theirs)
    else:
        home.symlink_to(theirs)
    signals.send([Wakeup(queue="q")])
    assert valuable.exists()
    signals.close()


def test_a_sender_removes_nothing_but_sockets(database: str) -> None:
    signals = LocalSignals(database)
    os.makedirs(signals.directory, 0o700)
    file = Path(signals.directory, "a-file")
    file.touch()
    signals.send([Wakeup(queue="q")])
    assert file.exists()
    file.unlink()
    os.rmdir(signals.directory)
    signals.close()


async def test_a_path_that_is_too_long_for_a_socket_is_said_so(tmp_path: Path) -> None:
    listener = LocalListener(str(tmp_path), str(tmp_path / ("x" * 120)), Ear(), 10.0)
    with pytest.raises(OSError, match="too long for a socket"):
        listener.start()


async def test_the_socket_of_a_dead_process_is_removed(database: str) -> None:
    signals, ear = LocalSignals(database), Ear()
    listener = await listening(signals, ear)
    stale = os.path.join(signals.directory, "1-dead")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
        dead.bind(stale)
    signals.send([Wakeup(queue="q")])
    await ear.until(Wakeup(queue="q"))
    assert "1-dead" not in os.listdir(signals.directory)
    await listener.close()
    assert not has_directory(signals)
    signals.close()


async def test_the_last_listener_leaves_nothing_behind(database: str) -> None:
    signals = LocalSignals(database)
    first, last = await listening(signals, Ear()), await listening(signals, Ear())
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
        dead.bind(os.path.join(signals.directory, "1-dead"))  # as a process that was killed
    await first.close()
    assert len(os.listdir(signals.directory)) == 1
    await last.close()
    assert not has_directory(signals)


def test_listeners_that_come_and_go_at_once_do_not_lose_their_directory(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def come_and_go() -> None:
        signals, ear = LocalSignals(database), Ear()
        for _ in range(300):
            await (await listening(signals, ear)).close()

    with ThreadPoolExecutor(3) as threads, caplog.at_level(logging.WARNING, "holdfast"):
        ends = [threads.submit(asyncio.run, come_and_go()) for _ in range(3)]
    assert [end.exception() for end in ends] == [None] * 3, caplog.text
    assert not has_directory(LocalSignals(database))


async def test_a_listener_that_does_not_read_never_stops_a_sender(database: str) -> None:
    signals, ear = LocalSignals(database), Ear()
    listener = await listening(signals, ear)
    for number in range(5000):
        signals.send([Wakeup(queue=f"q{number}")])
    await ear.until(Wakeup(queue="q0"))
    await listener.close()
    signals.close()


async def test_what_can_not_be_read_is_a_wakeup_as_well(database: str) -> None:
    signals, ear = LocalSignals(database), Ear()
    listener = await listening(signals, ear)
    (name,) = os.listdir(signals.directory)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
        for message in (b"", b"c:no id", b"q:\xff", b"?"):
            stranger.sendto(message, os.path.join(signals.directory, name))
            assert await ear.until(Wakeup()) == []
    await listener.close()


async def test_a_socket_that_was_tidied_away_is_made_again_and_everything_looked_at(
    database: str,
) -> None:
    signals, ear = LocalSignals(database, check_seconds=0.01), Ear()
    listener = await listening(signals, ear)
    (name,) = os.listdir(signals.directory)
    os.unlink(os.path.join(signals.directory, name))
    os.rmdir(signals.directory)
    assert await ear.until(Wakeup()) == []
    signals.send([Wakeup(queue="again")])
    await ear.until(Wakeup(queue="again"))
    await listener.close()
    signals.close()


def test_a_loop_that_watches_no_sockets_hears_nothing(database: str) -> None:
    class Deaf(asyncio.SelectorEventLoop):
        def add_reader(self, *args: object) -> None:
            raise NotImplementedError

    async def listen() -> LocalListener | None:
        return LocalSignals(database).listen(Ear())

    make_loop: Callable[[], asyncio.AbstractEventLoop] = Deaf
    with asyncio.Runner(loop_factory=make_loop) as runner:
        assert runner.run(listen()) is None
    assert not has_directory(LocalSignals(database))
