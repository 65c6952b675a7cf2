"""The files that a package contains beside its modules."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import import_module
from typing import Protocol


class Traversable(Protocol):
    """The part of `importlib.resources.abc.Traversable` that we use."""

    @property
    def name(self) -> str: ...

    def is_dir(self) -> bool: ...

    def is_file(self) -> bool: ...

    def iterdir(self) -> Iterator[Traversable]: ...

    def joinpath(self, *names: str) -> Traversable: ...

    def read_bytes(self) -> bytes: ...

    def read_text(self, encoding: str) -> str: ...


class _Entry:
    """A file or a folder. Works without `pathlib`, which would add 3 ms to the start of every
    program."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.name = os.path.basename(path)

    def is_dir(self) -> bool:
        return os.path.isdir(self._path)

    def is_file(self) -> bool:
        return os.path.isfile(self._path)

    def iterdir(self) -> Iterator[Traversable]:
        return (self.joinpath(name) for name in os.listdir(self._path))

    def joinpath(self, *names: str) -> Traversable:
        return _Entry(os.path.join(self._path, *names))

    def read_bytes(self) -> bytes:
        with open(self._path, "rb") as file:
            return file.read()

    def read_text(self, encoding: str) -> str:
        with open(self._path, encoding=encoding) as file:
            return file.read()


def files(package: str) -> Traversable:
    """The folder of a package, as from `importlib.resources`.

    Only packages in a zip file or in several folders need that module, which takes 0.7 MB.
    """
    folders = list(getattr(import_module(package), "__path__", ()))
    if len(folders) == 1 and os.path.isdir(folders[0]):
        return _Entry(folders[0])
    from importlib.resources import files

    found: Traversable = files(package)
    return found
