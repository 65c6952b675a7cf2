"""What is looked at, and what each key does to that: without input or output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from holdfast.domain.job import Job
from holdfast.domain.overview import Meter, Overview
from holdfast.domain.queues import QueueStatus
from holdfast.domain.workers import WorkerStatus


class Tab(Enum):
    QUEUES = "Queues"
    WORKERS = "Workers"
    FAILURES = "Failures"


class Wish(Enum):
    """What a key asks of whoever runs the screen."""

    QUIT = "quit"
    SHOW_JOB = "show job"
    ASK = "ask whether to pause or resume the chosen queue"
    CHANGE = "do what was asked"


TABS = tuple(Tab)
PAGE_ROWS = 10


def _by_name(queue: QueueStatus, meter: Meter) -> Any:
    return queue.name


def _by_ready(queue: QueueStatus, meter: Meter) -> Any:
    return -queue.ready, queue.name


def _by_age(queue: QueueStatus, meter: Meter) -> Any:
    return -(queue.oldest_ready_seconds or 0.0), queue.name


def _by_rate(queue: QueueStatus, meter: Meter) -> Any:
    rate = meter.rate(queue.name)
    return -(rate.done if rate else 0.0), queue.name


def _by_failures(queue: QueueStatus, meter: Meter) -> Any:
    rate = meter.rate(queue.name)
    return -(rate.failed if rate else 0.0), queue.name


ORDERS: dict[str, Callable[[QueueStatus, Meter], Any]] = {
    "name": _by_name,
    "ready": _by_ready,
    "oldest": _by_age,
    "done/s": _by_rate,
    "failed/s": _by_failures,
}


@dataclass(frozen=True)
class View:
    """The state of the screen. `typing` is True while a filter is typed; `question` waits for a y;
    `detail` holds the lines about one job, which are scrolled by `row`."""

    tab: Tab = Tab.QUEUES
    row: int = 0
    order: str = "name"
    filter: str = ""
    typing: bool = False
    frozen: bool = False
    help: bool = False
    question: str | None = None
    detail: Sequence[str] | None = None
    rows_before: int = field(default=0, repr=False)  # the row to go back to from a detail

    def queues(self, seen: Overview, meter: Meter) -> list[QueueStatus]:
        found = [each for each in seen.queues if self._matches(each.name)]
        return sorted(found, key=lambda each: ORDERS[self.order](each, meter))

    def workers(self, seen: Overview) -> list[WorkerStatus]:
        found = [each for each in seen.workers if self._matches(each.id)]
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
            case "up" | "k":
                return self.moved(-1), None
            case "down" | "j":
                return self.moved(1), None
            case "page up":
                return self.moved(-PAGE_ROWS), None
            case "page down":
                return self.moved(PAGE_ROWS), None
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

    def moved(self, rows: int) -> View:
        return replace(self, row=max(0, self.row + rows))

    def bounded(self, rows: int) -> View:
        """The same view, on a row that exists."""
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
            case "space":
                return replace(self, filter=self.filter + " ", row=0)
        return replace(self, filter=self.filter + key, row=0) if len(key) == 1 else self
