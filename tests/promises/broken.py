"""A worker's module with a resource that can't be made."""

from holdfast import Holdfast
from tests.promises.handlers import Jobs

hf = Holdfast()
jobs = Jobs(hf)


@hf.resource
async def mail() -> None:
    raise ConnectionError("the mail server is away")
