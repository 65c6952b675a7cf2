"""Act as init if the worker is the first process of a container.

Process 1 has to reap every process whose parent is gone, and no signal ends it unless it has a
handler. So it does only that, and the command continues in a child.
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
    """Continue in a child if this is process 1. Call this before starting threads."""
    if os.getpid() != 1:
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    child = os.fork()
    if child == 0:
        os.setsid()  # so that Ctrl-C reaches it once, through its parent
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        return
    for number in SIGNALS:
        signal.signal(number, lambda number, _: os.kill(child, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    os._exit(_reap(child))


def _reap(child: int) -> int:
    """Reap processes until the child ends; return its exit code, as a shell would."""
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
