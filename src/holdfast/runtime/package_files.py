"""The files that a package contains beside its modules."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


def files(package: str) -> Traversable:
    """The folder of a package, as from `importlib.resources`.

    Only packages in a zip file or in several folders need that module, which takes 0.7 MB.
    """
    folders = list(getattr(import_module(package), "__path__", ()))
    if len(folders) == 1 and os.path.isdir(folders[0]):
        return Path(folders[0])
    from importlib.resources import files

    return files(package)
