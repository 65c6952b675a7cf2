"""Read single keys from the terminal."""

from __future__ import annotations

import os
import re
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager

_SEQUENCES = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b[H": "home",
    "\x1b[1~": "home",
    "\x1b": "escape",
    "\r": "enter",
    "\n": "enter",
    "\t": "tab",
    " ": "space",
    "\x7f": "backspace",
    "\x08": "backspace",
}
# The sequence of a function key, or one character.
_KEY = re.compile(r"\x1b\[[0-9;]*[A-Za-z~]|\x1bO[A-Za-z]|.", re.DOTALL)


@contextmanager
def pressed_at_once() -> Iterator[None]:
    """Deliver each key at once, without echo, until the block ends."""
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal, termios.TCSADRAIN)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def read_keys() -> list[str] | None:
    """Read the pending keys; return None if the terminal is gone."""
    try:
        data = os.read(sys.stdin.fileno(), 1024)
    except OSError:
        return None
    if not data:
        return None
    return names(data.decode(errors="replace"))


def names(text: str) -> list[str]:
    """Name the keys in what the terminal sent; a key without a name stands for itself."""
    keys = (_SEQUENCES.get(key, key) for key in _KEY.findall(text))
    return [key for key in keys if (len(key) > 1 and key[0] != "\x1b") or key.isprintable()]
