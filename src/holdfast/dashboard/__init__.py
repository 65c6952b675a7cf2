"""The dashboard: web pages to see and operate the jobs, beside the HTTP API.

`make_api(hf, pages=make_pages)` serves it. It needs the extra `dashboard`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.dashboard.page import Pages, Visit
    from holdfast.dashboard.site import Site, make_pages

_PLACES = {"Pages": "page", "Site": "site", "Visit": "page", "make_pages": "site"}

__all__ = ["Pages", "Site", "Visit", "make_pages"]


def __getattr__(name: str) -> Any:
    """Load a name on first use: workers import the types of systems' pages without the extra."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
