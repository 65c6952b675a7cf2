"""The state of the screen, and how each key changes it. Pure: no input, no output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from holdfast.domain.job import Job
from holdfast.domain.overview import Meter, Overview, Rate
from holdfast.domain.queues import QueueStatus
from holdfast.domain.workers import WorkerStatus


class Tab(Enum):
    QUEUES = "Queues"
    WORKERS = "Workers"
    FAILURES = "Failures"


class Wish(Enum):
    """What a key asks the watch to do."""

    QUIT = "quit"
    SHOW_JOB = "show job"
    ASK = "ask whether to pause or resume the selected queue"
    CHANGE = "pause or resume it"


TABS = tuple(Tab)
PAGE_ROWS = 10
MOVES = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -PAGE_ROWS, "page down": PAGE_ROWS}

ORDERS: dict[str, Callable[[QueueStatus, Rate], float]] = {
    "name": lambda queue, rate: 0.0,
    "ready": lambda queue, rate: queue.ready,
    "oldest": lambda queue, rate: queue.oldest_ready_seconds or 0.0,
    "done/s": lambda queue, rate: rate.done,
    "failed/s": lambda queue, rate: rate.failed,
}


@dataclass(frozen=True)
class View:
    """The state of the screen. `typing` is True while the user types a filter; `question` waits for
    a y; `detail` holds the lines about one job, and `row` scrolls them."""

    tab: Tab = Tab.QUEUES
    row: int = 0
    order: str = "name"
    filter: str = ""
    typing: bool = False
    frozen: bool = False
    help: bool = False
    question: str | None = None
    detail: Sequence[str] | None = None
    rows_before: int = field(default=0, repr=False)  # to return to from a detail

    def queues(self, seen: Overview, meter: Meter) -> list[QueueStatus]:
        def key(queue: QueueStatus) -> tuple[float, str]:
            rate = meter.rate(queue.name) or Rate(0.0, 0.0)
            return -ORDERS[self.order](queue, rate), queue.name

        return sorted((each for each in seen.queues if self._matches(each.name)), key=key)

    def workers(self, seen: Overview) -> list[WorkerStatus]:
        found = [each for each in seen.workers or () if self._matches(each.id)]
        return sorted(found, key=lambda each: (each.lost, each.host, each.pid))

    def failures(self, seen: Overview) -> list[Job]:
        return [
            each
            for each in seen.failures
            if self._matches(f"{each.name} {each.queue} {each.error_code} {each.error_text}")
        ]

    def rows(self, seen: Overview, meter: Meter) -> Sequence[object]:
        match self.tab:
            case Tab.QUEUES:
                return self.queues(seen, meter)
            case Tab.WORKERS:
                return self.workers(seen)
            case Tab.FAILURES:
                return self.failures(seen)

    def _matches(self, text: str) -> bool:
        return self.filter.casefold() in text.casefold()

    def press(self, key: str) -> tuple[View, Wish | None]:
        if self.typing:
            return self._type(key), None
        if self.question is not None:
            return replace(self, question=None), Wish.CHANGE if key in ("y", "Y") else None
        if self.help:
            return replace(self, help=False), None
        match key:
            case "q":
                return self, Wish.QUIT
            case "escape" | "backspace" if self.detail is not None:
                return replace(self, detail=None, row=self.rows_before), None
            case _ if key in MOVES:
                return replace(self, row=max(0, self.row + MOVES[key])), None
            case "home" | "g":
                return replace(self, row=0), None
            case "space":
                return replace(self, frozen=not self.frozen), None
            case "?" | "h":
                return replace(self, help=True), None
        return self._press_list(key)

    def _press_list(self, key: str) -> tuple[View, Wish | None]:
        match key:
            case "1" | "2" | "3":
                return self._on(TABS[int(key) - 1]), None
            case "tab":
                return self._on(TABS[(TABS.index(self.tab) + 1) % len(TABS)]), None
            case "s" if self.tab is Tab.QUEUES:
                orders = list(ORDERS)
                following = orders[(orders.index(self.order) + 1) % len(orders)]
                return replace(self, order=following, row=0), None
            case "p" if self.tab is Tab.QUEUES:
                return self, Wish.ASK
            case "/":
                return replace(self, typing=True, detail=None), None
            case "escape":
                return replace(self, filter="", row=0), None
            case "enter" if self.tab is Tab.FAILURES and self.detail is None:
                return self, Wish.SHOW_JOB
        return self, None

    def bounded(self, rows: int) -> View:
        """Keep the row within the rows that exist."""
        return replace(self, row=max(0, min(self.row, rows - 1)))

    def asking(self, question: str) -> View:
        return replace(self, question=question)

    def showing(self, lines: Sequence[str]) -> View:
        return replace(self, detail=lines, row=0, rows_before=self.row)

    def _on(self, tab: Tab) -> View:
        return replace(self, tab=tab, row=0, detail=None)

    def _type(self, key: str) -> View:
        match key:
            case "enter":
                return replace(self, typing=False)
            case "escape":
                return replace(self, typing=False, filter="")
            case "backspace":
                return replace(self, filter=self.filter[:-1], row=0)
        typed = " " if key == "space" else key
        return replace(self, filter=self.filter + typed, row=0) if len(typed) == 1 else self
