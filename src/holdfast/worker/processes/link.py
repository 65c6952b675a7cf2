"""A child process's connection to the worker that started it.

When it closes, the worker is gone. Then this process and all that its handlers started are killed.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import queue
import signal
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from holdfast.context import Context, Surroundings
from holdfast.domain.codec import Results
from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.job import Lease
from holdfast.runtime.seam import Seam
from holdfast.worker.processes import messages
from holdfast.worker.run import Run

Work = tuple[Run, messages.Perform] | messages.Call


class Link:
    """The connection to the worker. It lives on a side thread; the main thread calls `send`."""

    def __init__(self, descriptor: int) -> None:
        self.work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self.resources: Mapping[str, Any] = {}
        self.results = Results(bytes_max=0)
        self._seam = Seam()
        self._loop = self._seam.side_loop("holdfast-link")
        self._run: Run | None = None
        self._numbers = itertools.count()
        self._recording: dict[int, asyncio.Future[messages.Recorded]] = {}
        self.boot = self._loop.submit(self._open(descriptor)).result()

    def close(self) -> None:
        self._loop.submit(self._close()).result()
        self._loop.close()

    def send(self, message: messages.Message) -> None:
        self._loop.submit(self._send(message)).result()

    async def progress(self, lease: Lease, progress: bytes) -> bool:
        """Record progress through the worker, which has the lease. Await it on any loop."""
        return await asyncio.wrap_future(self._loop.submit(self._record(lease, progress)))

    async def _record(self, lease: Lease, progress: bytes) -> bool:
        # A thread that a handler left behind may still run beside the next job.
        if self._run is None or self._run.lease != lease:
            return False
        number = next(self._numbers)
        self._recording[number] = asyncio.get_running_loop().create_future()
        try:
            await self._send(messages.Progress(number, lease, progress))
            answer = await self._recording[number]
        finally:
            del self._recording[number]
        if answer.trouble is not None:
            raise StoreUnavailable(answer.trouble)
        return answer.leased

    async def _open(self, descriptor: int) -> messages.Boot:
        connection = socket.socket(fileno=descriptor)
        connection.set_inheritable(False)
        self._reader, self._writer = await asyncio.open_unix_connection(sock=connection)
        # Makes `drain` wait until the message has left this process.
        self._writer.transport.set_write_buffer_limits(0)
        boot = await messages.receive(self._reader)
        if not isinstance(boot, messages.Boot):
            os._exit(0)  # the worker is already gone
        self._listening = asyncio.create_task(self._listen())
        return boot

    async def _close(self) -> None:
        self._listening.cancel()
        await asyncio.wait([self._listening])
        self._writer.close()

    async def _send(self, message: messages.Message) -> None:
        if isinstance(message, messages.Ended):
            self._run = None
        self._writer.write(messages.pack(message))
        await self._writer.drain()

    async def _listen(self) -> None:
        with suppress(Exception):
            while (message := await messages.receive(self._reader)) is not None:
                self._handle(message)
        os.killpg(0, signal.SIGKILL)

    def _handle(self, message: messages.Message) -> None:
        match message:
            case messages.Perform(job):
                loop = asyncio.get_running_loop()
                around = Surroundings(self, self.resources, self.results, self._seam, loop)
                context = Context(job, around)
                context._enable_stop()
                context._encrypted = message.encrypted
                self._run = Run(job, context, self._seam.monotonic())
                self.work.put((self._run, message))
            case messages.Call():
                self.work.put(message)
            case messages.StopHandler(why) if self._run is not None:
                self._run.request_stop(why)
            case messages.Recorded(number) if number in self._recording:
                self._recording[number].set_result(message)
            case messages.Close():
                self.work.put(None)
