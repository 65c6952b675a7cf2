"""An event loop whose clock a test can move forward, while sockets and threads stay real.

Timeouts that are measured by the loop end as soon as the test says that their time is over.
Clocks outside of the loop, such as `Seam.monotonic` and those of other threads, don't move.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec

from tests.support.processes import turn

P = ParamSpec("P")


class _Loop(asyncio.SelectorEventLoop):
    ahead_seconds = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_seconds


def fast_forwarding(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run the test on such a loop. It can't use async fixtures, which have another."""

    @wraps(test)
    def run(*args: P.args, **fixtures: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=_Loop) as runner:
            runner.run(test(*args, **fixtures))

    return run


async def fast_forward(seconds: float) -> None:
    """Move the clock, and return when the timers that are due have fired."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, _Loop), "decorate the test with @fast_forwarding"
    loop.ahead_seconds += seconds
    await turn()
    await turn()
