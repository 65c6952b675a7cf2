"""Ctrl-C while a program is still being imported: exit at once, with nothing to clean up."""

import os
import signal

INTERRUPTED_CODE = 130


def end_at_interrupt() -> None:
    """Exit at once on SIGINT, unless the parent process ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def raise_at_interrupt() -> None:
    """Raise KeyboardInterrupt on SIGINT again, because there is now something to clean up."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(_number: int, _frame: object) -> None:
    # No exception, because an import could catch it. The newline ends the line that shows the ^C.
    os.write(2, b"\nholdfast: interrupted\n")
    os._exit(INTERRUPTED_CODE)
