"""Jobs that depend on a gateway: `holdfast worker tests.promises.depending:hf`.

It works when there is a file `up`, and leaves who asks without an answer when there is one `hang`.
"""

from holdfast import Breaker, Context, Holdfast
from tests.promises.handlers import SOON, folder, note
from tests.support.processes import poll

FAILURES = 5

hf = Holdfast()


@hf.job(
    breaker=Breaker("gateway", failures=FAILURES, window_seconds=600, probe_seconds=0.5),
    retry=SOON,
)
async def depend(ctx: Context) -> None:
    note(ctx, "start")
    await poll(lambda: not (folder() / "hang").exists())
    if not (folder() / "up").exists():
        note(ctx, "fail")
        raise ConnectionError("no answer")
    note(ctx, "finish")


@hf.job
async def free(ctx: Context) -> None:
    note(ctx, "free")
