"""One job before and after a deploy: `holdfast worker tests.promises.deploying:before`."""

from holdfast import Context, Holdfast
from tests.promises.handlers import note

before = Holdfast()
after = Holdfast()


@before.job(name="send")
async def send_before(ctx: Context, to: str) -> str:
    note(ctx, "start")
    return to


@after.job(name="send")
async def send_after(ctx: Context, to: str, subject: str) -> str:
    note(ctx, "start")
    return f"{to}: {subject}"
