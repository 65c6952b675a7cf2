"""Test your jobs in a sandbox, with an empty database and virtual time.

    async with sandbox(hf) as jobs:
        job = await resize.enqueue("a.png")
        await jobs.drain()
        assert (await hf.get(job.id)).state is State.SUCCEEDED

The guide is docs/guides/testing.md.
"""

from importlib import import_module

TYPE_CHECKING = False

if TYPE_CHECKING:
    from holdfast.testing.sandboxes import Sandbox as Sandbox
    from holdfast.testing.sandboxes import sandbox as sandbox
    from holdfast.testing.sandboxes import sandbox_sync as sandbox_sync
    from holdfast.testing.virtual_time import VirtualTime as VirtualTime

__all__ = ["Sandbox", "VirtualTime", "sandbox", "sandbox_sync"]

_MODULES = {"VirtualTime": "virtual_time"}


def __getattr__(name: str) -> object:
    """Load the names on first use: pytest imports the plugin beside this in every run."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_MODULES.get(name, 'sandboxes')}")
    return globals().setdefault(name, getattr(module, name))
