"""The event loop of a command."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

CLEANUP_SECONDS_MAX = 2.0


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run on a new event loop, on uvloop if it is installed."""
    runner = asyncio.Runner(loop_factory=_fastest_loop())
    try:
        return runner.run(work)
    finally:
        # Closing the loop waits for its tasks, generators and threads, some of which may never
        # end: a handler may ignore its cancellation.
        if not asyncio.all_tasks(runner.get_loop()) and _close_generators(runner.get_loop()):
            # Closing now waits for this executor instead of the threads of `asyncio.to_thread`.
            runner.get_loop().set_default_executor(ThreadPoolExecutor(1))
            runner.close()


def _close_generators(loop: asyncio.AbstractEventLoop) -> bool:
    """Close the remaining async generators; return whether all closed in time."""
    closing = loop.create_task(loop.shutdown_asyncgens())
    done, _ = loop.run_until_complete(asyncio.wait({closing}, timeout=CLEANUP_SECONDS_MAX))
    return bool(done)


def _fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
