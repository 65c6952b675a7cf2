"""Test your jobs in a sandbox, with an empty database and virtual time.

async with sandbox(hf) as jobs:
    job = await resize.enqueue("a.png")
    await jobs.drain()
    assert (await hf.get(job.id)).state is State.SUCCEEDED
"""

from holdfast.testing.sandbox import Sandbox, sandbox
from holdfast.testing.virtual_time import VirtualTime

__all__ = ["Sandbox", "VirtualTime", "sandbox"]
