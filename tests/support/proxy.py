"""A network between the engine and PostgreSQL that can be cut, stalled and redirected."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from tests.support.processes import WAIT_SECONDS

CHUNK_BYTES = 64 * 1024
COMMIT = b"COMMIT"


@dataclass
class CommitCut:
    """Cut a connection when it commits, if it has sent `marker`: before the server gets the commit,
    or when the server has committed and answers. Or stall it there, until `goes_on` is set."""

    marker: bytes
    before: bool
    goes_on: asyncio.Event | None = None
    done: threading.Event = field(default_factory=threading.Event)


@dataclass
class LostAnswers:
    """Cut a connection when the server answers with `marker` on it, this many times."""

    marker: bytes
    times: int
    lost: int = 0

    def loses(self, data: bytes) -> bool:
        is_lost = self.lost < self.times and self.marker in data
        self.lost += is_lost
        return is_lost


@dataclass
class StallAt:
    """Stall when clients have sent `marker` this often: all connections, or `alone` that one."""

    marker: bytes
    times: int
    alone: bool
    begun: threading.Event = field(default_factory=threading.Event)

    def begins(self, data: bytes) -> bool:
        self.times -= data.count(self.marker)
        if self.begun.is_set() or self.times > 0:
            return False
        self.begun.set()
        return True


class Proxy:
    """Forwards connections to a local port, on its own thread and event loop, so that a test that
    blocks does not block the network."""

    def __init__(self, target_port: int) -> None:
        self.port = 0
        self.refused = 0  # connections to a port where nobody listens
        self._target_port = target_port
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._open: set[asyncio.StreamWriter] = set()
        self._commit_cut: CommitCut | None = None
        self._lost_answers = LostAnswers(b"", 0)
        self._stall_at: StallAt | None = None
        self._serving: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    def url(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def cut(self) -> None:
        """Close all connections. New ones get through."""
        self._call(self._cut())

    def stall(self) -> None:
        """Stall all traffic, without closing a connection."""
        self._call(self._do(self._flowing.clear))

    def stall_at(self, marker: bytes, *, times: int = 1, alone: bool = False) -> StallAt:
        """Stall when clients have sent the marker this often: everything, or that connection."""
        self._stall_at = StallAt(marker, times, alone)
        return self._stall_at

    def resume(self) -> None:
        self._call(self._do(self._flowing.set))

    def cut_at_commit(self, marker: bytes, *, before: bool) -> CommitCut:
        """Cut the next connection that commits after it has sent the marker; once."""
        self._commit_cut = CommitCut(marker, before)
        return self._commit_cut

    def cut_answers(self, marker: bytes, *, times: int) -> LostAnswers:
        """Cut connections on which the server answers with the marker; its work is done."""
        self._lost_answers = LostAnswers(marker, times)
        return self._lost_answers

    def hold_at_commit(self, marker: bytes, *, before: bool) -> CommitCut:
        """Stall the next connection that commits after it has sent the marker; once."""
        self._commit_cut = CommitCut(marker, before, asyncio.Event())
        return self._commit_cut

    def let_go(self, held: CommitCut) -> None:
        assert held.goes_on is not None
        self._call(self._do(held.goes_on.set))

    def switch(self, target_port: int) -> None:
        """Send all new connections to this port, and cut the others."""
        self._target_port = target_port
        self.cut()

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._listen())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_SECONDS)

    async def _do(self, change: Callable[[], None]) -> None:
        change()

    async def _listen(self) -> None:
        self._serving = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._serving.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        if self._serving is not None:
            self._serving.close()
        self._flowing.set()
        # Canceled tasks of a server are logged as errors. Without a connection, they end anyway.
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await self._cut()
            await asyncio.wait(others, timeout=0.1)

    async def _cut(self) -> None:
        for writer in list(self._open):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            with suppress(OSError):
                await self._flowing.wait()
                their_reader, their_writer = await self._connect()
                self._open.add(their_writer)
                try:
                    await self._forward_both(reader, writer, their_reader, their_writer)
                finally:
                    self._open.discard(their_writer)
                    their_writer.transport.abort()
        finally:
            self._open.discard(writer)
            writer.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            return await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            self.refused += 1
            raise

    async def _forward_both(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        their_reader: asyncio.StreamReader,
        their_writer: asyncio.StreamWriter,
    ) -> None:
        commits = _Commits()
        ways = [
            asyncio.create_task(
                self._forward(reader, their_writer, commits.ask, _loses_nothing, self._hold_back)
            ),
            asyncio.create_task(
                self._forward(their_reader, writer, commits.answer, self._loses, _holds_nothing)
            ),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    def _loses(self, data: bytes) -> bool:
        return self._lost_answers.loses(data)

    async def _hold_back(self, data: bytes) -> None:
        stall = self._stall_at
        if stall is not None and stall.begins(data):
            if stall.alone:
                await asyncio.Event().wait()
            self._flowing.clear()
            await self._flowing.wait()

    async def _forward(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        ends_at: Callable[[CommitCut, bytes], bool],
        loses: Callable[[bytes], bool],
        hold_back: Callable[[bytes], Coroutine[Any, Any, None]],
    ) -> None:
        while data := await source.read(CHUNK_BYTES):
            await self._flowing.wait()
            if loses(data):
                return
            await hold_back(data)
            cut = self._commit_cut
            if cut is not None and not cut.done.is_set() and ends_at(cut, data):
                cut.done.set()
                if cut.goes_on is None:
                    return
                await cut.goes_on.wait()
            target.write(data)
            await target.drain()


def _loses_nothing(data: bytes) -> bool:
    return False


async def _holds_nothing(data: bytes) -> None:
    pass


class _Commits:
    """How far one connection is on its way to a commit."""

    def __init__(self) -> None:
        self._is_marked = False
        self._is_committing = False

    def ask(self, cut: CommitCut, data: bytes) -> bool:
        self._is_marked |= cut.marker in data
        self._is_committing = self._is_marked and COMMIT in data
        return self._is_committing and cut.before

    def answer(self, cut: CommitCut, data: bytes) -> bool:
        return self._is_committing and not cut.before and COMMIT in data
