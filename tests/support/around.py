"""A store around another, by composition: for tests that watch, lose or refuse what it does."""

from __future__ import annotations

from typing import Any


class Around:
    """Every verb that a subclass does not define is the inner store's."""

    def __init__(self, store: Any) -> None:
        self.store = store
        kind = type(store)
        verbs = [name for name in dir(kind) if callable(getattr(kind, name)) and name[0] != "_"]
        # Bound here, too: from Python 3.12 on, `isinstance` with a protocol asks no __getattr__.
        self.__dict__ |= {
            name: getattr(store, name) for name in verbs if not hasattr(type(self), name)
        }

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)
