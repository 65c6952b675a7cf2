"""Hints about names that somebody misspelled."""

from __future__ import annotations

import pytest

from holdfast.domain.spelling import did_you_mean


@pytest.mark.parametrize(
    ("name", "known", "hint"),
    [
        ("mial", ["images", "mail"], "; did you mean 'mail'?"),
        ("mial", ["images"], ""),
        ("mial", [], ""),
        ("it", ["it's"], """; did you mean "it's"?"""),
    ],
)
def test_a_hint_names_the_most_similar_name_if_there_is_one(
    name: str, known: list[str], hint: str
) -> None:
    assert did_you_mean(name, known) == hint


def test_a_hint_can_be_less_or_more_strict() -> None:
    assert did_you_mean("x", ["mail"], likeness=0.0)
    assert not did_you_mean("mial", ["mail"], likeness=0.9)
