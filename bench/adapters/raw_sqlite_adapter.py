"""What SQLite itself can do: claims and settlements of 100, each synced to the disk."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager

from bench.adapters.contract import Adapter, Sent, handled, main

BATCH_JOBS = 100
POLL_SECONDS = 0.005
BUSY_SECONDS_MAX = 30.0

SCHEMA = """
CREATE TABLE IF NOT EXISTS raw_jobs (
    id INTEGER PRIMARY KEY,
    state INTEGER NOT NULL DEFAULT 0,
    queue TEXT NOT NULL DEFAULT 'default',
    priority INTEGER NOT NULL DEFAULT 0,
    attempt INTEGER NOT NULL DEFAULT 0,
    run_at REAL NOT NULL,
    lease_until REAL,
    finished_at REAL,
    payload TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS raw_ready ON raw_jobs (queue, priority, run_at, id) WHERE state = 0;
DELETE FROM raw_jobs;
"""
INSERT = "INSERT INTO raw_jobs (run_at, payload) VALUES (?, ?)"
CLAIM = """
UPDATE raw_jobs SET state = 1, attempt = attempt + 1, lease_until = :now + 30
WHERE id IN (
    SELECT id FROM raw_jobs WHERE state = 0 AND queue = 'default' AND run_at <= :now
    ORDER BY priority, run_at, id LIMIT :limit
)
RETURNING id, payload
"""
SETTLE = """
UPDATE raw_jobs SET state = 2, finished_at = ?, lease_until = NULL WHERE id = ? AND state = 1
"""
UNFINISHED = "SELECT count(*) FROM raw_jobs WHERE state < 2"


class RawSqlite(Adapter):
    def settings(self) -> dict[str, str]:
        return {
            "settings": f"journal_mode=WAL, synchronous=FULL, claims of {BATCH_JOBS};"
            " bulk: executemany",
            "documented": "",
            "versions": f"sqlite {sqlite3.sqlite_version}",
        }

    def prepare(self) -> None:
        with self._connected() as file:
            file.executescript(SCHEMA)

    def enqueue(self, jobs: Iterable[Sent]) -> None:
        with self._connected() as file:
            for sent in jobs:
                file.execute(INSERT, _row(sent))

    def bulk(self, batches: Iterable[list[Sent]]) -> None:
        with self._connected() as file:
            for batch in batches:
                file.execute("BEGIN IMMEDIATE")
                file.executemany(INSERT, map(_row, batch))
                file.execute("COMMIT")

    def work(self) -> None:
        with self._connected() as file:
            while True:
                claim = {"now": time.time(), "limit": BATCH_JOBS}
                rows = file.execute(CLAIM, claim).fetchall()
                for _, payload in rows:
                    handled(json.loads(payload)["sent_at"])
                if rows:
                    now = time.time()
                    file.execute("BEGIN IMMEDIATE")
                    file.executemany(SETTLE, [(now, row_id) for row_id, _ in rows])
                    file.execute("COMMIT")
                else:
                    time.sleep(POLL_SECONDS)

    def unfinished(self) -> int:
        with self._connected() as file:
            return int(file.execute(UNFINISHED).fetchone()[0])

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        path = self.around.database_url.removeprefix("sqlite:///")
        with closing(sqlite3.connect(path, BUSY_SECONDS_MAX, isolation_level=None)) as file:
            file.execute("PRAGMA journal_mode = WAL")
            file.execute("PRAGMA synchronous = FULL")
            yield file


def _row(sent: Sent) -> tuple[float, str]:
    return time.time(), json.dumps({"sent_at": sent.sent_at, "padding": sent.padding})


if __name__ == "__main__":
    main(RawSqlite())
