"""Durable, lease-based background jobs for Python, on the database you already have."""

from importlib import import_module

TYPE_CHECKING = False  # type checkers know the name; importing typing would be slow

if TYPE_CHECKING:
    from holdfast.public import *  # noqa: F403
    from holdfast.public import __all__ as __all__
else:

    def __getattr__(name: str) -> object:
        """Load the public names on first use: that takes a tenth of a second, and the command
        must be ready for Ctrl-C before."""
        public = import_module("holdfast.public")
        names = {each: getattr(public, each) for each in ("__all__", *public.__all__)}
        globals().update(names)
        if name in names:
            return names[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
