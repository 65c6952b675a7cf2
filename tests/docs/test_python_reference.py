"""The reference of the Python API says what the code says."""

from __future__ import annotations

import holdfast
import holdfast.testing
import holdfast.webhooks
from scripts import reference


def test_the_page_is_what_the_docstrings_say() -> None:
    is_current = reference.PAGE.read_text(encoding="utf-8") == reference.page()
    assert is_current, "run: make reference"


def test_every_public_name_is_on_the_page() -> None:
    assert reference.described() == set(holdfast.__all__)


def test_every_public_name_and_method_has_a_docstring() -> None:
    kinds = [
        getattr(module, name)
        for module in (holdfast, holdfast.testing, holdfast.webhooks)
        for name in module.__all__
    ]
    silent = [
        f"{kind.__name__}.{name}"
        for kind in [*kinds, *reference.OPERATIONS.values()]
        if isinstance(kind, type)
        for name, member in [("", kind), *reference.members(kind)]
        if not reference.paragraphs(member)
    ]
    assert silent == []
