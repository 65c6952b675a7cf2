"""After a run: is every job accounted for? Compares the ledger with the rows.

Numbers in findings are those of the promises in the README.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from chaos.app import CAP, CAPPED
from chaos.ledger import Entry, Run, runs_by_job
from holdfast import State

GUILTY = ("kill", "kill_child", "overrun")
PAYING = ("pay", "pay_in_thread")
COMPLETING = (*PAYING, "order")
CLOCK_SECONDS = 0.05  # by which the wall clock may be slewed against the ledger's
COLUMNS = """
    id, name, queue, state, fence, attempt, max_attempts, releases, snoozes, crashes,
    correlation_id, idempotency_key, requeued_from, started_at < run_at,
    result ->> 'fence', progress ->> 'fence', arguments ->> 'ordered'
"""
ROWS = f"SELECT {COLUMNS} FROM jobs UNION ALL SELECT {COLUMNS} FROM history"
PAYMENTS = "SELECT job, fence FROM payments"
ORDERS = "SELECT request FROM orders"


class Row(NamedTuple):
    """A job as the database has it, live or ended."""

    id: str
    name: str
    queue: str
    state: str
    fence: int
    attempt: int
    max_attempts: int
    releases: int
    snoozes: int
    crashes: int
    request: str | None
    key: str | None
    requeued_from: str | None
    early: bool
    result_fence: int | None
    progress_fence: int | None
    ordered: str | None

    @classmethod
    def of(cls, values: Sequence[Any]) -> Row:
        row = cls(*values)
        return row._replace(
            id=str(row.id),
            result_fence=row.result_fence and int(row.result_fence),
            progress_fence=row.progress_fence and int(row.progress_fence),
        )

    @property
    def ended(self) -> bool:
        return State(self.state).ended


class Finding(NamedTuple):
    """A broken promise: a job is `lost`, `doubled` or `stuck`, or something else is `wrong`."""

    kind: str
    promise: int
    text: str


@dataclass
class Account:
    """All that is known of a run on one store."""

    entries: Sequence[Entry]
    rows: Sequence[Row]
    payments: Sequence[tuple[str, int]]
    orders: Sequence[str]
    by_id: dict[str, Row] = field(init=False)
    runs: dict[str, list[Run]] = field(init=False)

    def __post_init__(self) -> None:
        self.by_id = {row.id: row for row in self.rows}
        self.runs = runs_by_job(self.entries)

    def of(self, *what: str) -> Iterator[Entry]:
        return (entry for entry in self.entries if entry.what in what)

    def winner(self, row: Row) -> Run | None:
        """The run whose end was recorded: the end of a lease raises the fence by one."""
        for run in self.runs.get(row.id, ()):
            if run.start.fence == row.fence - 1:
                return run
        return None

    @property
    def overlapping(self) -> int:
        """Runs that began while one with an older lease of the job went on: its worker had lost
        that lease, and did not know yet."""
        return sum(
            later.start.at < (earlier.end.at if earlier.end else 0.0)
            for runs in self.runs.values()
            for earlier, later in itertools.pairwise(runs)
        )


def judge(account: Account) -> list[Finding]:
    checks = (
        find_lost,
        find_half_enqueued,
        find_doubled_keys,
        find_doubled,
        find_doubled_effects,
        find_stuck,
        find_wrong_ends,
        find_old_fences,
        find_too_many_starts,
        find_changed_ends,
        find_early_starts,
        find_crowded_queues,
        find_surprises,
    )
    return [finding for check in checks for finding in check(account)]


def find_lost(account: Account) -> Iterator[Finding]:
    for entry in account.of("told", "requeued"):
        for job_id in entry.ids:
            if job_id not in account.by_id:
                yield Finding("lost", 1, f"job {job_id} was acknowledged but doesn't exist")


def find_half_enqueued(account: Account) -> Iterator[Finding]:
    """A request is there as a whole or not at all; one that was taken back is not."""
    first = [row for row in account.rows if row.requeued_from is None and row.name != "ship"]
    found = Counter(row.request for row in first)
    told = {entry.request for entry in account.of("told")}
    undone = {entry.request for entry in account.of("undone")}
    ordered = Counter(account.orders)
    for ask in account.of("ask"):
        count = found[ask.request]
        if ask.request in undone and count:
            yield Finding("wrong", 1, f"request {ask.request} was rolled back but exists")
        elif not ask.key and count != ask.jobs and (count or ask.request in told):
            kind = "lost" if count < ask.jobs else "doubled"
            yield Finding(kind, 1, f"{count} of {ask.jobs} jobs of request {ask.request}")
        if ordered[ask.request] and (count != 1 or ordered[ask.request] != 1):
            yield Finding("wrong", 1, f"request {ask.request}: its row and its job differ")


def find_doubled_keys(account: Account) -> Iterator[Finding]:
    keys = {entry.request: entry.key for entry in account.of("ask") if entry.key}
    told: defaultdict[str, set[str]] = defaultdict(set)
    for entry in account.of("told"):
        if entry.request in keys:
            told[keys[entry.request]].update(entry.ids)
    rows = Counter(row.key for row in account.rows if row.key)
    for key in set(keys.values()):
        if len(told[key]) > 1 or rows[key] > 1:
            yield Finding("doubled", 10, f"key {key} has {rows[key]} jobs; told: {told[key]}")


def find_doubled(account: Account) -> Iterator[Finding]:
    for job_id, count in Counter(row.id for row in account.rows).items():
        if count > 1:
            yield Finding("doubled", 7, f"job {job_id} is there {count} times")
    for job_id, runs in account.runs.items():
        for fence, count in Counter(run.start.fence for run in runs).items():
            if count > 1:
                yield Finding("doubled", 2, f"job {job_id} started {count} times at fence {fence}")


def find_doubled_effects(account: Account) -> Iterator[Finding]:
    """What is written in a completing transaction is there once if the job succeeded, or never."""
    paid: defaultdict[str, list[int]] = defaultdict(list)
    for job_id, fence in account.payments:
        paid[job_id].append(fence)
    shipped = Counter(row.ordered for row in account.rows if row.name == "ship")
    for row in account.rows:
        succeeded = row.state == State.SUCCEEDED
        if row.name in PAYING and paid[row.id] != ([row.fence - 1] if succeeded else []):
            kind = "doubled" if len(paid[row.id]) > 1 else "wrong"
            yield Finding(kind, 4, f"{_shown(row)} has paid at fences {paid[row.id]}")
        # A ship that was requeued names the same order.
        if row.name == "order" and succeeded != bool(shipped[row.id]):
            yield Finding("wrong", 4, f"{_shown(row)} has shipped {shipped[row.id]} times")


def find_stuck(account: Account) -> Iterator[Finding]:
    for row in account.rows:
        if not row.ended:
            yield Finding("stuck", 5, f"{_shown(row)}, attempt {row.attempt}, fence {row.fence}")


def find_wrong_ends(account: Account) -> Iterator[Finding]:
    canceled = {entry.job for entry in account.of("cancel")}
    for row in account.rows:
        expected = {"refuse": State.FAILED} | dict.fromkeys(GUILTY, State.DEAD)
        allowed = {expected.get(row.name, State.SUCCEEDED)}
        if row.id in canceled:
            allowed.add(State.CANCELED)
        if row.ended and row.state not in allowed:
            yield Finding("wrong", 6, f"{_shown(row)} after {row.attempt} attempts")


def find_old_fences(account: Account) -> Iterator[Finding]:
    """The end that is recorded is that of the last run, and of no other."""
    for row in account.rows:
        if row.state != State.SUCCEEDED:
            continue
        fences = [run.start.fence for run in account.runs.get(row.id, ())]
        if not fences or max(fences) != row.fence - 1 or row.result_fence != row.fence - 1:
            said = f"its result says {row.result_fence}, its runs had {sorted(fences)}"
            yield Finding("wrong", 3, f"{_shown(row)} with fence {row.fence}; {said}")
        if row.name == "work" and row.progress_fence != row.fence - 1:
            yield Finding("wrong", 3, f"{_shown(row)}: progress of fence {row.progress_fence}")
        winner = account.winner(row)
        if row.name not in COMPLETING and winner and (not winner.end or winner.end.how != "ok"):
            yield Finding("wrong", 3, f"{_shown(row)}, though its handler did not return")


def find_too_many_starts(account: Account) -> Iterator[Finding]:
    """The last attempt is given back once, if it crashed in company."""
    for row in account.rows:
        most = row.max_attempts + row.releases + row.snoozes + 1
        if len(account.runs.get(row.id, ())) > most:
            yield Finding("wrong", 6, f"{_shown(row)} started more than {most} times")


def find_changed_ends(account: Account) -> Iterator[Finding]:
    for entry in account.of("canceled"):
        row = account.by_id.get(entry.job)
        if row and row.state != State.CANCELED:
            yield Finding("wrong", 7, f"{_shown(row)}, and was canceled")
    for entry in account.of("seen"):
        row = account.by_id.get(entry.job)
        if row and (row.state, row.fence) != (entry.how, entry.fence):
            yield Finding("wrong", 7, f"{_shown(row)}, and was {entry.how} before")


def find_early_starts(account: Account) -> Iterator[Finding]:
    due = {entry.request: entry.at + entry.delay_seconds for entry in account.of("ask")}
    for row in account.rows:
        runs = account.runs.get(row.id)
        first = row.requeued_from is None and row.key is None and row.name != "ship"
        at = due.get(row.request or "", 0.0) if first else 0.0
        if runs and runs[0].start.at < at - CLOCK_SECONDS:
            yield Finding("wrong", 8, f"{_shown(row)} started {at - runs[0].start.at:.2f} s early")
        if row.early and row.state == State.SUCCEEDED:
            yield Finding("wrong", 8, f"{_shown(row)} started before it was due")


def find_crowded_queues(account: Account) -> Iterator[Finding]:
    """A run that was recorded had its lease all the time: never more than the cap at once."""
    changes: list[tuple[float, int]] = []
    for row in account.rows:
        if row.queue == CAPPED and (winner := account.winner(row)) and winner.end:
            changes += [(winner.start.at, 1), (winner.end.at, -1)]
    running = 0
    for _, change in sorted(changes):
        running += change
        if running > CAP:
            yield Finding("wrong", 2, f"{running} jobs of queue {CAPPED} ran at once")


def find_surprises(account: Account) -> Iterator[Finding]:
    told: Mapping[str, int] = Counter(entry.how for entry in account.of("surprise"))
    for error, count in told.items():
        yield Finding("wrong", 13, f"a client got {error} ({count} times)")


def _shown(row: Row) -> str:
    return f"{row.name} {row.id} is {row.state}"
