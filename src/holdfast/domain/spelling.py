"""The known name that somebody who misspelled one probably means."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

LIKE: Final = 0.6  # how similar two names must be, from 0 to 1


def did_you_mean(name: str, known: Iterable[str], likeness: float = LIKE) -> str:
    """The end of a sentence that says that a name is unknown; empty if none is similar."""
    import difflib  # which only a mistake needs

    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=likeness)
    return f"; did you mean {close[0]!r}?" if close else ""
