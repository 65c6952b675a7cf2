"""Where an app or a function was defined, so that another process can import it."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import threading
from collections.abc import Iterable
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from operator import attrgetter
from types import ModuleType
from typing import Any

import msgspec

from holdfast.domain import texts
from holdfast.domain.errors import BadArguments, ConfigurationError

MAIN = "__main__"
# The name that multiprocessing gives to a script in its children: a main program behind
# `if __name__ == "__main__"` does not run there.
MAIN_AGAIN = "__mp_main__"

_loading = threading.Event()


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The module and name of a function, or of an app with the modules that define its jobs.
    `script` is the file of `__main__`, if that is one of them, and `package` its package."""

    module: str
    name: str
    modules: tuple[str, ...] = ()
    script: str | None = None
    package: str | None = None


def find_origin(app: object, functions: Iterable[object] = ()) -> Origin | None:
    """Find the module that has this app as a global, preferably not `__main__`."""
    modules = {_importable(getattr(function, "__module__", None)) for function in functions}
    found = _global(app)
    if found is None:
        return None
    module, name = _importable(found[0]), found[1]
    script = _script() if MAIN in {module, *modules} else None
    if module is None or (MAIN in {module, *modules} and script is None):
        return None
    others = sorted(each for each in modules if each not in (None, module))
    return Origin(module=module, name=name, modules=tuple(others), script=script)


def function_origin(function: object) -> Origin:
    """Find the name by which another process can import this function, or say why it can't."""
    name = getattr(function, "__qualname__", None)
    module = getattr(function, "__module__", None)
    if not isinstance(name, str) or not isinstance(module, str):
        raise BadArguments(f"{texts.shown(function)} is not a function, so no process can run it")
    advice = "; run_in_process needs a function that a new process can import"
    if "<" in name:
        raise BadArguments(f"{name} is a lambda, or defined inside a function{advice}")
    if inspect.iscoroutinefunction(function):
        raise BadArguments(f"{name} is async, but a child process has no event loop for it")
    try:
        is_there = attrgetter(name)(sys.modules.get(module)) == function
    except AttributeError:
        is_there = False
    if not is_there:
        raise BadArguments(f"{module}.{name} is a method, or names something else{advice}")
    if module not in (MAIN, MAIN_AGAIN):
        return Origin(module=module, name=name)
    # Even with `python -m`: pickles call its classes those of `__main__`.
    script, package = _script(), getattr(sys.modules[MAIN], "__package__", None)
    if script is None:
        raise BadArguments(f"{name} is defined in an interactive session{advice}")
    return Origin(module=MAIN, name=name, script=script, package=package)


def load(origin: Origin) -> Any:
    """Import the function, or the app and the other modules that define its jobs."""
    _loading.set()
    try:
        module = _import(origin.module, origin)
        for other in origin.modules:
            _import(other, origin)
    finally:
        _loading.clear()
    return attrgetter(origin.name)(module)


def check_not_loading() -> None:
    """Refuse to run a main program that `load` imports."""
    if _loading.is_set():
        raise ConfigurationError(
            "a child process imports this program to get its jobs and must not run it again; put"
            ' code that enqueues jobs or runs a worker behind `if __name__ == "__main__":`'
        )


def _global(app: object) -> tuple[str, str] | None:
    last_choice = None
    for module_name, module in list(sys.modules.items()):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if value is app:
                if module_name not in (MAIN, MAIN_AGAIN):
                    return module_name, name
                last_choice = MAIN, name
    return last_choice


def _importable(module: str | None) -> str | None:
    """The name to import a module by: `tasks` for `python -m tasks`."""
    if module not in (MAIN, MAIN_AGAIN):
        return module
    spec = getattr(sys.modules[MAIN], "__spec__", None)
    return spec.name if spec is not None else MAIN


def _script() -> str | None:
    path = getattr(sys.modules[MAIN], "__file__", None)
    return os.path.abspath(path) if path else None


def _import(module: str, origin: Origin) -> ModuleType:
    if module != MAIN:
        return importlib.import_module(module)
    if MAIN_AGAIN not in sys.modules:
        assert origin.script is not None
        loader = SourceFileLoader(MAIN_AGAIN, origin.script)
        spec = spec_from_loader(MAIN_AGAIN, loader)
        assert spec is not None
        again = sys.modules[MAIN] = sys.modules[MAIN_AGAIN] = module_from_spec(spec)
        again.__spec__ = None  # as in a script; multiprocessing would import it by its name
        again.__package__ = origin.package
        loader.exec_module(again)
    return sys.modules[MAIN_AGAIN]
