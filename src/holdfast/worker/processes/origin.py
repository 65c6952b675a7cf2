"""Where an app was defined, so that another process can import it."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Iterable
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from types import ModuleType
from typing import Any

import msgspec

from holdfast.domain.errors import ConfigurationError

MAIN = "__main__"
# The name that multiprocessing gives to a script in its children: a main program behind
# `if __name__ == "__main__"` does not run there.
MAIN_AGAIN = "__mp_main__"

_loading = threading.Event()


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The module and name of an app, and the modules that define its jobs. `script` is the file of
    `__main__`, if that is one of them."""

    module: str
    name: str
    modules: tuple[str, ...] = ()
    script: str | None = None


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


def load_app(origin: Origin) -> Any:
    """Import the app, and the other modules that define its jobs."""
    _loading.set()
    try:
        module = _import(origin.module, origin.script)
        for other in origin.modules:
            _import(other, origin.script)
    finally:
        _loading.clear()
    return getattr(module, origin.name)


def check_not_loading() -> None:
    """Refuse to run a main program that `load_app` imports."""
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


def _import(module: str, script: str | None) -> ModuleType:
    if module != MAIN:
        return importlib.import_module(module)
    if MAIN_AGAIN not in sys.modules:
        assert script is not None
        loader = SourceFileLoader(MAIN_AGAIN, script)
        spec = spec_from_loader(MAIN_AGAIN, loader)
        assert spec is not None
        again = sys.modules[MAIN] = sys.modules[MAIN_AGAIN] = module_from_spec(spec)
        again.__spec__ = None  # as in a script; multiprocessing would import it by its name
        loader.exec_module(again)
    return sys.modules[MAIN_AGAIN]
