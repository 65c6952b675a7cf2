"""A child process, as the worker sees it: it runs one thing at a time, and can be killed."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import sys
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final
from weakref import WeakSet

from holdfast.domain.errors import StoreError
from holdfast.runtime.seam import Process, Seam, detach, no_forks
from holdfast.worker.processes import messages
from holdfast.worker.processes.launch import ending
from holdfast.worker.run import Run, Stop

START_SECONDS_MAX: Final = 60.0
END_SECONDS_MAX: Final = 5.0
_ECHO_SECONDS: Final = 1.0
_SOURCE: Final = str(Path(__file__).parents[3])
# Without the current directory on the path (-P): a file there may shadow a module that is needed
# before the worker's own path is known.
_COMMAND: Final = (
    sys.executable,
    "-P",
    "-c",
    f"import sys; sys.path.append({_SOURCE!r});"
    " from holdfast.worker.processes.child import main; main()",
)

# What a clean environment has, besides variables that begin with LC_: nothing that a secret is in.
_CLEAN: Final = frozenset(
    {"HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "PYTHONHOME", "PYTHONPATH", "TMPDIR", "TZ"}
)

# Our ends of what ties children to this process. A forked process must not keep them open.
_ends: WeakSet[IO[bytes] | socket.socket] = WeakSet()
os.register_at_fork(after_in_child=lambda: detach(_ends))


@dataclass(frozen=True, slots=True)
class Kind:
    """What a child is for. Only a child of the same kind can be reused."""

    runs_handlers: bool = False
    memory_bytes_max: int | None = None
    clean_environment: bool = False


class NotStarted(Exception):
    """A child process failed to start. `log_text` is the text without what the user's code said."""

    def __init__(self, text: str, log_text: str | None = None) -> None:
        super().__init__(text)
        self.log_text = log_text or text


class ChildProcess:
    """One child process and the connection to it.

    The lifeline is a pipe that carries no data: it breaks when the worker dies.
    """

    def __init__(
        self,
        kind: Kind,
        process: Process,
        lifeline: IO[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.kind = kind
        self._process = process
        self._lifeline = lifeline
        self._reader = reader
        self._writer = writer
        self._exited = asyncio.get_running_loop().create_task(self._watch())
        self._fault: str | None = None
        self.is_busy = True
        self.is_spent = False
        self.jobs_done = 0
        self.bytes_used = 0

    @classmethod
    async def start(cls, seam: Seam, kind: Kind) -> ChildProcess:
        environment = _clean_environment() if kind.clean_environment else None
        with ExitStack() as ours, ExitStack() as theirs:
            try:
                with no_forks:
                    near, far = socket.socketpair()
                    ours.enter_context(near)
                    theirs.enter_context(far)
                    reading, writing = os.pipe()
                    their_end = theirs.enter_context(os.fdopen(reading, "rb", 0))
                    lifeline = ours.enter_context(os.fdopen(writing, "wb", 0))
                    _ends.update((near, lifeline))
                descriptors = [far.fileno(), their_end.fileno()]
                command = [*_COMMAND, *map(str, descriptors)]
                async with asyncio.timeout(START_SECONDS_MAX):
                    process = await seam.start_process(
                        command, pass_fds=descriptors, environment=environment
                    )
                    streams = await asyncio.open_unix_connection(sock=near)
            except OSError as error:
                reason = str(error) or f"it took longer than {START_SECONDS_MAX:g} s"
                raise NotStarted(f"could not start a child process: {reason}") from error
            ours.pop_all()
            return cls(kind, process, lifeline, *streams)

    async def boot(self, boot: messages.Boot) -> None:
        """Wait until it is ready, or raise NotStarted."""
        self._send(boot)
        try:
            async with asyncio.timeout(START_SECONDS_MAX):
                answer = await messages.receive(self._reader)
        except TimeoutError:
            text = f"the child process was not ready within {START_SECONDS_MAX:g} s"
            raise NotStarted(text) from None
        except messages.Unreadable as error:
            raise NotStarted(f"the child process sent an invalid message: {error}") from error
        if answer is None:
            raise NotStarted(f"the child process {await self.ending()} while starting")
        if isinstance(answer, messages.NotReady):
            raise NotStarted(
                f"{answer.reason}: {answer.error_text}", f"{answer.reason}: {answer.error_type}"
            )
        self.is_busy = False

    async def perform(self, run: Run, memory_bytes_max: int | None) -> messages.Ended | None:
        """Run the handler in the child, and record its progress; None if the child died."""
        message = await self._ask(messages.Perform(run.sent_job, memory_bytes_max, run.encrypted))
        while isinstance(message, messages.Progress):
            message = await self._ask(await _record(run, message))
        return message if isinstance(message, messages.Ended) else None

    async def call(self, call: messages.Call) -> messages.Returned | None:
        """Run the function in the child; None if the child died."""
        message = await self._ask(call)
        return message if isinstance(message, messages.Returned) else None

    async def _ask(self, message: messages.Message) -> messages.Message | None:
        """Send a message, and wait for the next one; None if the child died."""
        self._send(message)
        self.is_busy = True
        try:
            answer = await messages.receive(self._reader)
        except messages.Unreadable:
            # Somebody else wrote to our socket: nothing that follows can be read.
            self._fault = "sent an invalid message"
            self.kill()
            return None
        if isinstance(answer, messages.Ended | messages.Returned):
            self.is_busy = False
            self.jobs_done += 1
            self.bytes_used = answer.bytes_used
            # A failed allocation may have left it in any state.
            self.is_spent = answer.lacked_memory
        return answer

    def stop_handler(self, why: Stop) -> None:
        self._send(messages.StopHandler(why))

    def kill(self) -> None:
        """Kill it, and all that the handler started in its process group."""
        if self._process.returncode is None:
            self._kill_group()

    async def close(self) -> None:
        """Let it close its resources and exit. Kill it if it is busy or takes too long."""
        if self.is_busy:
            self.kill()
        self._send(messages.Close())
        await asyncio.wait([self._exited], timeout=END_SECONDS_MAX)
        self.kill()
        await asyncio.wait([self._exited], timeout=_ECHO_SECONDS)
        self._writer.close()
        self._lifeline.close()

    @property
    def is_alive(self) -> bool:
        return not self._exited.done() and not self._reader.at_eof()

    @property
    def has_hung_up(self) -> bool:
        """Whether its end of the connection is closed, even if the loop has yet to hear of it."""
        watch = select.poll()
        watch.register(self._writer.get_extra_info("socket"), 0)  # only hang-ups and errors
        return bool(watch.poll(0))

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode

    async def ending(self) -> str:
        """Wait for its end; return how it ended, as the end of a sentence."""
        await asyncio.wait([self._exited], timeout=_ECHO_SECONDS)
        if not self._exited.done():
            self._fault = self._fault or "closed its connection to the worker"
            self.kill()
            await asyncio.wait([self._exited], timeout=END_SECONDS_MAX)
        return self._fault or ending(self._exited.result())

    def _send(self, message: messages.Message) -> None:
        if not self._writer.is_closing():
            self._writer.write(messages.pack(message))

    async def _watch(self) -> int:
        """Wait for its end. Then kill what it started, and with that the copies of its socket."""
        code = await self._process.wait()
        self._kill_group()
        asyncio.get_running_loop().call_later(_ECHO_SECONDS, self._writer.transport.abort)
        return code

    def _kill_group(self) -> None:
        # The kernel does not reuse the number while a process of the group is left.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)


def _clean_environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name in _CLEAN or name.startswith("LC_")
    }


async def _record(run: Run, progress: messages.Progress) -> messages.Recorded:
    if progress.lease != run.lease:
        return messages.Recorded(progress.number, leased=False)
    try:
        return messages.Recorded(
            progress.number, leased=await run.context._record_progress(progress.data)
        )
    except StoreError as error:
        return messages.Recorded(progress.number, leased=True, trouble=str(error))
