"""The `holdfast` command: run a subcommand, and explain any error in one line."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence

import click

from holdfast.cli import session as sessions
from holdfast.cli.audit import audit
from holdfast.cli.breakers import breakers
from holdfast.cli.bulk import bulk
from holdfast.cli.dashboard import dashboard
from holdfast.cli.dead import dead
from holdfast.cli.demo import demo
from holdfast.cli.dev import dev
from holdfast.cli.doctor import doctor
from holdfast.cli.jobs import jobs
from holdfast.cli.keys import keys
from holdfast.cli.messages import messages
from holdfast.cli.migrate import migrate
from holdfast.cli.queues import queues
from holdfast.cli.roles import roles
from holdfast.cli.secrets import secrets
from holdfast.cli.serve import serve
from holdfast.cli.servicebus_local import servicebus_local
from holdfast.cli.session import Group, Session, say
from holdfast.cli.top.command import top
from holdfast.cli.webhooks.command import webhooks
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


for command in (
    *(serve, dashboard, worker, workers, top, doctor, dev, migrate),
    *(jobs, dead, bulk, queues, breakers, messages, keys, roles, secrets, audit, webhooks, demo),
    servicebus_local,
):
    holdfast.add_command(command)


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
        raise_at_interrupt()
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
