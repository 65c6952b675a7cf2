"""Find the Holdfast object that a command works on: in a module, or made from a URL."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import sys
import traceback
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import click

from holdfast.app import Holdfast
from holdfast.cli.loop import run
from holdfast.domain.secrets import shown_url
from holdfast.domain.spelling import did_you_mean

T = TypeVar("T")

ENVIRONMENT_NAME = "HOLDFAST_DATABASE_URL"
APP_ENVIRONMENT_NAME = "HOLDFAST_APP"

database_option = click.option(
    "--database",
    metavar="URL",
    help=f"Database URL, if no MODULE:NAME is given. Default: ${ENVIRONMENT_NAME}.",
)


app_option = click.option(
    "--app",
    metavar="MODULE:NAME",
    help=f"Holdfast object, like app:hf for hf in app.py. Default: ${APP_ENVIRONMENT_NAME}.",
)


def on_app(command: Callable[..., Coroutine[Any, Any, T]]) -> Callable[..., T]:
    """Run the command on the object that --app names: a URL does not know its jobs."""

    @app_option
    @wraps(command)
    def on_target(app: str | None, **options: Any) -> T:
        name = name_of_app(app, None)
        if not name:
            raise click.UsageError(
                f"no app given; pass --app MODULE:NAME, or set ${APP_ENVIRONMENT_NAME}"
            )
        return run(command(load_app(name), **options))

    return on_target


def on_database(command: Callable[..., Coroutine[Any, Any, T]]) -> Callable[..., T]:
    """Run the command on the object that --app names, or on one made for --database."""

    @app_option
    @database_option
    @wraps(command)
    def on_target(app: str | None, database: str | None, **options: Any) -> T:
        return run(command(find_existing(app, database), **options))

    return on_target


def find_target(app: str | None, database: str | None) -> Holdfast:
    """Load the object that --app or the environment names, or make one for a URL."""
    if app and database:
        raise click.UsageError("pass MODULE:NAME or --database, not both")
    if app := name_of_app(app, database):
        return load_app(app)
    if not database and not os.environ.get(ENVIRONMENT_NAME):
        raise click.UsageError(
            "no database given; pass --app MODULE:NAME or --database URL,"
            f" or set ${APP_ENVIRONMENT_NAME} or ${ENVIRONMENT_NAME}"
        )
    return Holdfast(database)


def name_of_app(app: str | None, database: str | None) -> str | None:
    """The name that was given, or else the environment's, unless a database was given."""
    return app or (None if database else os.environ.get(APP_ENVIRONMENT_NAME))


def on_same_target(text: str) -> str:
    """Give the commands in a text the --app or --database of this one, so that they can be pasted.

    A password is masked.
    """
    context = click.get_current_context(silent=True)
    given = context.params if context else {}
    option = ""
    if app := given.get("app"):
        option = f" --app {shlex.quote(app)}"
    elif database := given.get("database"):
        option = f" --database {shlex.quote(shown_url(database))}"
    return re.sub(r"holdfast [a-z]+ [a-z]+", lambda match: match[0] + option, text)


def find_existing(app: str | None, database: str | None) -> Holdfast:
    """Find the target, but never create a missing SQLite file."""
    found = find_target(app, database)
    check_exists(found)
    return found


def check_exists(found: Holdfast) -> None:
    """Fail if its SQLite file is missing."""
    scheme, separator, path = found.url_shown.partition(":///")
    path = path.partition("?")[0]
    if scheme == "sqlite" and separator and not Path(path).exists():
        raise click.ClickException(f"database file {path} does not exist")


def load_app(written: str) -> Holdfast:
    """Import `module:name` with the current directory on the path."""
    module_name, colon, name = written.partition(":")
    if not (module_name and colon and name):
        raise click.UsageError(
            f"expected MODULE:NAME, for example app:hf for hf in app.py, got {written!r}"
        )
    if module_name.endswith(".py") or "/" in module_name:
        dotted = module_name.removesuffix(".py").strip("./").replace("/", ".")
        raise click.UsageError(f"name the module, not its file: {dotted}:{name}")
    found = getattr(module := _import(module_name), name, None)
    if isinstance(found, Holdfast):
        return found
    if hasattr(module, name):
        kind = type(found).__name__
        raise click.ClickException(f"{written} is a {kind}, not a Holdfast object")
    apps = [key for key, value in vars(module).items() if isinstance(value, Holdfast)]
    hint = did_you_mean(name, apps, likeness=0.0) if apps else " and no Holdfast object"
    raise click.ClickException(f"module {module_name} has no {name!r}{hint}")


def _import(module_name: str) -> ModuleType:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and f"{module_name}.".startswith(f"{error.name}."):
            raise click.ClickException(
                f"no module named {error.name!r} in {os.getcwd()} or on the Python path"
            ) from error
        raise _import_failed(module_name, error) from error
    except (Exception, SystemExit) as error:
        raise _import_failed(module_name, error) from error


def _import_failed(module_name: str, error: BaseException) -> click.ClickException:
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return click.ClickException(f"importing {module_name} failed at {_place(error)}: {what}")


def _place(error: BaseException) -> str:
    """Name the line of the user's code that raised, not one in a library that it called."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_relative(error.filename)}:{error.lineno}"
    skipped = ("<frozen", __file__, importlib.__file__)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(skipped)
    ]
    own = [frame for frame in frames if not frame.filename.startswith(_libraries())]
    at = (own or frames)[-1] if frames else None
    return f"{_relative(at.filename)}:{at.lineno}" if at else "an unknown location"


def _libraries() -> tuple[str, ...]:
    import sysconfig  # which only an error needs

    folders = map(sysconfig.get_path, ("stdlib", "purelib", "platlib"))
    return (*folders, str(Path(__file__).parents[1]))


def _relative(path: str) -> str:
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path
