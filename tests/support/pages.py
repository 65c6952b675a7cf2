"""Compare a page of the docs with the code, and say which entries to add, change or remove."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def assert_documented(
    page: str, documented: Mapping[str, object], actual: Mapping[str, object]
) -> None:
    """Every name is on the page, with what the code says of it."""
    changed = [
        f"change {name} from {documented[name]} to {actual[name]}"
        for name in actual
        if documented.get(name, actual[name]) != actual[name]
    ]
    wrong = [*_missing_and_extra(documented, actual), *changed]
    assert not wrong, "; ".join([f"{page} is out of date", *wrong])


def assert_listed(page: str, listed: Sequence[str], actual: Sequence[str]) -> None:
    """Every name is on the page, in the order of the code."""
    wrong = _missing_and_extra(listed, actual)
    assert not wrong, "; ".join([f"{page} is out of date", *wrong])
    assert listed == actual, f"{page}: keep the order of the code"


def _missing_and_extra(
    documented: Mapping[str, object] | Sequence[str], actual: Mapping[str, object] | Sequence[str]
) -> list[str]:
    return [
        *(f"add {name}" for name in actual if name not in documented),
        *(f"remove {name}" for name in documented if name not in actual),
    ]
