"""A store that wraps another, for tests that observe, lose or refuse its calls."""

from __future__ import annotations

from typing import Any


class Around:
    """Passes on every verb that a subclass does not define."""

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
