"""The options of commands that log: format, level, and whether to show errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import click

from holdfast.app import Holdfast
from holdfast.observability import logs
from holdfast.worker.log_filter import LogFilter

LEVELS = ("debug", "info", "warning", "error")

_OPTIONS = (
    click.option(
        "--log-format",
        type=click.Choice(["auto", "json", "text"]),
        envvar="HOLDFAST_LOG_FORMAT",
        help="auto: readable in a terminal, JSON lines elsewhere.",
    ),
    click.option(
        "--log-level",
        type=click.Choice(LEVELS, case_sensitive=False),
        default="info",
        show_default=True,
        envvar="HOLDFAST_LOG_LEVEL",
        help="Log this level and above.",
    ),
    click.option(
        "--log-errors",
        is_flag=True,
        help="Log the text and traceback of errors. They may contain personal data.",
    ),
)


def log_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def configure_logs(
    hf: Holdfast, log_format: logs.Format | None, log_level: str, log_errors: bool
) -> list[str]:
    """Log as the options say; return the options of processes that this one starts."""
    if log_errors:
        hf.settings = replace(hf.settings, log_errors=True)
    # Keep the logging that the user's module set up, unless a format was requested.
    if log_format or not logs.configured():
        logs.configure(log_format or "auto", log_level, LogFilter())
    options = ["--log-level", log_level]
    options += ["--log-format", log_format] if log_format else []
    return options + (["--log-errors"] if hf.settings.log_errors else [])
