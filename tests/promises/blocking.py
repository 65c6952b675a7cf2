"""Jobs that block the event loop of their worker, and jobs that are beside them then."""

from __future__ import annotations

import threading

from holdfast import Context, Holdfast, Retry
from tests.promises.handlers import SOON, block_for_ever, gated, hang_for_ever, is_open, note
from tests.support.processes import turn

TIMEOUT_SECONDS = 0.3


async def block_by_turns(ctx: Context, gate: str, seconds: float) -> None:
    """Block the event loop again and again for this long, with one turn of the loop in between."""
    note(ctx, "start")
    while not is_open(gate, ctx):
        threading.Event().wait(seconds)
        await turn()


class NoWayOut(Retry):
    def limit_for(self, code: str) -> int | None:
        raise RuntimeError("there is no way out")


class Blocking:
    def __init__(self, hf: Holdfast) -> None:
        self.wait = hf.job(name="wait", retry=SOON)(gated)
        self.wait_briefly = hf.job(name="wait_briefly", retry=SOON, timeout_seconds=1.0)(gated)
        self.block = hf.job(name="block_briefly", timeout_seconds=TIMEOUT_SECONDS)(block_for_ever)
        self.block_without_timeout = hf.job(name="block_without_timeout")(block_for_ever)
        self.block_by_turns = hf.job(block_by_turns)
        self.block_without_a_way_out = hf.job(
            name="block_without_a_way_out",
            timeout_seconds=TIMEOUT_SECONDS,
            retry=NoWayOut(max_attempts=2),
        )(block_for_ever)
        self.hang_in_child = hf.job(name="hang_in_child", executor="process")(hang_for_ever)


hf = Holdfast()
jobs = Blocking(hf)
