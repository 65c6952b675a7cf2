"""The entry of the command `holdfast`: its commands, and one clear line for whatever goes wrong."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence

import click

from holdfast.cli import session as sessions
from holdfast.cli.breakers import breakers
from holdfast.cli.dead import dead
from holdfast.cli.demo import demo
from holdfast.cli.dev import dev
from holdfast.cli.doctor import doctor
from holdfast.cli.jobs import jobs
from holdfast.cli.migrate import migrate
from holdfast.cli.queues import queues
from holdfast.cli.session import Group, Session, say
from holdfast.cli.top.command import top
from holdfast.cli.worker import worker
from holdfast.cli.workers import workers
from holdfast.domain.errors import HoldfastError
from holdfast.domain.secrets import masked
from holdfast.interrupts import INTERRUPTED_CODE, raise_at_interrupt

EXIT_SECONDS_MAX = 2.0


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="holdfast", message="holdfast %(version)s")
def holdfast() -> None:
    """Durable jobs for Python, on the database you already have.

    \b
    Example:
      holdfast dev app:hf               run the jobs of hf in app.py
      holdfast jobs list --app app:hf   list them
    """


for command in (worker, workers, top, doctor, dev, migrate, jobs, dead, queues, breakers, demo):
    holdfast.add_command(command)


def run(arguments: Sequence[str]) -> int:
    """Run the command and answer its exit code."""
    session = Session()
    try:
        code = holdfast.main(
            list(arguments), prog_name="holdfast", standalone_mode=False, obj=session
        )
        sys.stdout.flush()
        return code or 0
    except BrokenPipeError:
        # The reader has gone (`| head`): the interpreter's last flush must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return sessions.FAILED_CODE
    except (KeyboardInterrupt, click.Abort):
        return _end_interrupted()
    except Exception as error:
        if session.debug:
            click.echo(masked(traceback.format_exc()), err=True, nl=False)
        return _explain(error)


def _end_interrupted() -> int:
    # All that is left is to end: another Ctrl-C would only cut that short.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    say("interrupted")
    return INTERRUPTED_CODE


def _explain(error: Exception) -> int:
    match error:
        case click.exceptions.NoArgsIsHelpError():
            error.show()
            return sessions.USAGE_CODE
        case click.UsageError():
            where = f" (see: {error.ctx.command_path} --help)" if error.ctx else ""
            say(error.format_message() + where)
            return sessions.USAGE_CODE
        case click.ClickException():
            say(error.format_message())
        case HoldfastError():
            say(str(error))
        case _:
            say(f"{type(error).__name__}: {error} (use --debug for a traceback)")
    return sessions.FAILED_CODE


def main() -> None:
    try:
        raise_at_interrupt()
        code = run(sys.argv[1:])
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # all that is left is to end
    except KeyboardInterrupt:  # a second one, before the first was dealt with
        code = _end_interrupted()
    # Handlers that never end may have left threads behind that the interpreter would wait for.
    threading.Thread(target=_exit_late, args=(code,), daemon=True).start()
    sys.exit(code)


def _exit_late(code: int) -> None:
    threading.Event().wait(EXIT_SECONDS_MAX)
    os._exit(code)


if __name__ == "__main__":
    main()
