"""What clients of brokers log about their connections. A messenger says that itself, and once:
without this, each attempt to reach a broker that is away would be an error in the log, or pages of
details."""

from __future__ import annotations

import logging
from functools import cache


@cache
def log_aside(package: str, thread: str) -> None:
    """On this thread, let the package log only for those who debug it. Call this when it is
    imported."""
    aside = _Aside(thread)
    for name in [*logging.root.manager.loggerDict]:
        if name == package or name.startswith(f"{package}."):
            logging.getLogger(name).addFilter(aside)


class _Aside(logging.Filter):
    def __init__(self, thread: str) -> None:
        super().__init__()
        self._thread = thread

    def filter(self, record: logging.LogRecord) -> bool:
        is_debugged = logging.getLogger(record.name).isEnabledFor(logging.DEBUG)
        return is_debugged or record.threadName != self._thread
