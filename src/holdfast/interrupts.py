"""Ctrl-C while a program is still being imported: there is nothing to clean up yet, so it ends."""

import os
import signal

INTERRUPTED_CODE = 130


def end_at_interrupt() -> None:
    """End at once at SIGINT, unless whoever started this process has it ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def raise_at_interrupt() -> None:
    """From here on there is something to clean up: raise KeyboardInterrupt, as Python does."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(_number: int, _frame: object) -> None:
    # No exception: an import could catch it. First comes the end of the line that shows the ^C.
    os.write(2, b"\nholdfast: interrupted\n")
    os._exit(INTERRUPTED_CODE)
