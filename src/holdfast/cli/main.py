"""The `holdfast` command: run a subcommand, and explain any error in one line."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence

import click

from holdfast.cli import session as sessions
from holdfast.cli.commands import Commands
from holdfast.cli.session import Session, say
from holdfast.domain.errors import HoldfastError
from holdfast.domain.secrets import masked
from holdfast.interrupts import INTERRUPTED_CODE, raise_at_interrupt
from holdfast.version import VERSION

EXIT_SECONDS_MAX = 2.0


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, message="holdfast %(version)s")
def holdfast() -> None:
    """Durable jobs for Python, on the database you already have.

    \b
    Example:
      holdfast dev app:hf               run the jobs of hf in app.py
      holdfast jobs list --app app:hf   list them
    """
    raise_at_interrupt()  # the command has been imported


def run(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    session = Session()
    try:
        code = holdfast.main(
            list(arguments), prog_name="holdfast", standalone_mode=False, obj=session
        )
        sys.stdout.flush()
        return code or 0
    except BrokenPipeError:
        # The reader is gone (`| head`): keep the interpreter's last flush from complaining.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return sessions.FAILED_CODE
    except (KeyboardInterrupt, click.Abort):
        return _end_interrupted()
    except Exception as error:
        if session.debug:
            import traceback

            click.echo(masked(traceback.format_exc()), err=True, nl=False)
        return _explain(error)


def _end_interrupted() -> int:
    # Only cleanup is left, and another Ctrl-C would cut it short.
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
            say(error.format_message().rstrip(".") + where)
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
        code = run(sys.argv[1:])
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # only cleanup is left
    except KeyboardInterrupt:  # a second Ctrl-C, while the first was being handled
        code = _end_interrupted()
    # The interpreter would wait for threads of handlers that never end.
    threading.Thread(target=_exit_late, args=(code,), daemon=True).start()
    sys.exit(code)


def _exit_late(code: int) -> None:
    threading.Event().wait(EXIT_SECONDS_MAX)
    os._exit(code)


if __name__ == "__main__":
    main()
