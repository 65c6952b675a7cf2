"""Keep the screen live: read the database at intervals, and keys as they are pressed."""

from __future__ import annotations

import asyncio
import signal
import sys
from io import StringIO
from uuid import UUID

from rich.console import Console
from rich.live import Live

from holdfast.app import Holdfast
from holdfast.cli.details import print_job
from holdfast.cli.operator import operator, recorded
from holdfast.cli.show import read_details
from holdfast.cli.top.keys import pressed_at_once, read_keys
from holdfast.cli.top.screen import Place, Size, draw
from holdfast.cli.top.view import View, Wish
from holdfast.domain.errors import HoldfastError
from holdfast.domain.job import Job
from holdfast.domain.overview import Meter, Overview
from holdfast.domain.queues import QueueStatus
from holdfast.domain.secrets import masked
from holdfast.observability.logs import one_line

BECAUSE = "holdfast top"


class Watch:
    def __init__(self, app: Holdfast, interval_seconds: float) -> None:
        self._app = app
        self._interval_seconds = interval_seconds
        self._console = Console(highlight=False)
        self._view = View()
        self._meter = Meter()
        self._seen: Overview | None = None
        self._trouble: str | None = None
        self._ended = asyncio.Event()
        self._asked: QueueStatus | None = None
        self._doing: asyncio.Task[None] | None = None
        self._live = Live(console=self._console, screen=True, auto_refresh=False)

    async def run(self) -> None:
        """Show the screen until a key or a signal ends it."""
        loop = asyncio.get_running_loop()
        with pressed_at_once(), self._live:
            reading = asyncio.create_task(self._read())
            loop.add_reader(sys.stdin.fileno(), self._on_keys)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                loop.add_signal_handler(number, self._ended.set)
            loop.add_signal_handler(signal.SIGWINCH, self._draw)
            try:
                self._draw()
                ended = asyncio.create_task(self._ended.wait())
                await asyncio.wait({reading, ended}, return_when=asyncio.FIRST_COMPLETED)
                if reading.done():
                    reading.result()  # raises: it ends only with an unexpected error
            finally:
                loop.remove_reader(sys.stdin.fileno())
                for task in (reading, ended, self._doing):
                    if task is not None:
                        task.cancel()

    async def _read(self) -> None:
        while True:
            try:
                await self._look()
            except HoldfastError as error:
                self._trouble = masked(str(error))
            if not self._view.frozen:
                self._draw()
            await asyncio.sleep(self._interval_seconds)

    async def _look(self) -> None:
        seen = await self._app.overview()
        self._trouble = None
        self._meter.read(seen.now, seen.ended, seen.ended_last_minute)
        if not self._view.frozen:
            self._seen = seen

    def _on_keys(self) -> None:
        keys = read_keys()
        if keys is None:
            self._ended.set()
            return
        for key in keys:
            self._view, wish = self._view.press(key)
            self._bound()
            if wish is Wish.QUIT:
                self._ended.set()
            elif wish is not None and self._seen is not None:
                self._fulfill(wish, self._seen)
        self._draw()

    def _fulfill(self, wish: Wish, seen: Overview) -> None:
        for chosen in self._view.rows(seen, self._meter)[self._view.row :][:1]:
            if isinstance(chosen, Job) and wish is Wish.SHOW_JOB:
                self._doing = asyncio.create_task(self._show(chosen))
            elif isinstance(chosen, QueueStatus) and wish is Wish.ASK:
                self._asked = chosen
                what = "resume" if chosen.paused else "pause"
                self._view = self._view.asking(f"{what} queue {chosen.name}?")
        if wish is Wish.CHANGE and self._asked is not None:
            self._doing = asyncio.create_task(self._change(self._asked))

    async def _change(self, queue: QueueStatus) -> None:
        try:
            verb = "resume" if queue.paused else "pause"
            async with recorded(self._app, f"queue.{verb}", queue.name, because=BECAUSE):
                if queue.paused:
                    await self._app.queues.resume(queue.name)
                else:
                    await self._app.queues.pause(queue.name, by=operator(), because=BECAUSE)
            await self._look()
        except HoldfastError as error:
            self._trouble = masked(str(error))
        self._draw()

    async def _show(self, job: Job) -> None:
        try:
            lines = await self._lines(job.id)
        except HoldfastError as error:
            lines = [one_line(masked(str(error)))]
        self._view = self._view.showing(lines)
        self._draw()

    async def _lines(self, job_id: UUID) -> list[str]:
        """Render the job as `jobs show` does, in this terminal's colors."""
        details = await read_details(self._app, job_id)
        paper = Console(
            file=StringIO(),
            width=self._console.width,
            force_terminal=True,
            no_color=self._console.no_color,
            highlight=False,
        )
        with paper.capture() as captured:
            print_job(details, paper)
        return captured.get().splitlines()

    def _bound(self) -> None:
        if self._view.detail is not None:
            self._view = self._view.bounded(len(self._view.detail))
        elif self._seen is not None:
            self._view = self._view.bounded(len(self._view.rows(self._seen, self._meter)))

    def _draw(self) -> None:
        place = Place(self._app.url_shown, self._interval_seconds, self._trouble)
        size = Size(self._console.width, self._console.height)
        screen = draw(self._view, self._seen, self._meter, place, size)
        self._live.update(screen, refresh=True)
