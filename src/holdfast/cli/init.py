"""The first process of a container: it has duties that no other has.

The kernel gives it every process whose parent is gone, to be buried, and lets no signal end it that
it has no handler for, not even from a process beside it. So it does nothing else: the command goes
on in a child.
"""

from __future__ import annotations

import os
import signal

SIGNALS = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)


def leave_first_process() -> None:
    """Go on in a child if this is the first process, which then looks after all, and ends with its
    child. Called before there are threads."""
    if os.getpid() != 1:
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    child = os.fork()
    if child == 0:
        os.setsid()  # Ctrl-C reaches it through its parent, and once
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        return
    for number in SIGNALS:
        signal.signal(number, lambda number, _: os.kill(child, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    os._exit(_outlive(child))


def _outlive(child: int) -> int:
    """Bury every process until the child has ended; answer its exit code, as a shell would."""
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
