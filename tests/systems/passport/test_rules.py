"""Rules that pass the check can be computed; those that can't be are refused before."""

from __future__ import annotations

import json
from contextlib import suppress
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast_systems.passport.errors import PassportError, RuleTypeError, ValidationError
from holdfast_systems.passport.limits import RULE_STEPS_MAX
from holdfast_systems.passport.rules.package import (
    CheckRule,
    FieldRule,
    RulePackage,
    compile_rules,
    read_package,
)
from holdfast_systems.passport.schema import Cell
from tests.systems.passport.samples import SOURCE, sample_facts, sample_rules

pytestmark = pytest.mark.heavy


def package(*values: str, checks: tuple[str, ...] = ()) -> RulePackage:
    """Rules whose fields are a, b, c, ..."""
    fields = tuple(FieldRule(chr(97 + place), value) for place, value in enumerate(values))
    found = tuple(CheckRule(f"check {place}", text) for place, text in enumerate(checks))
    return RulePackage("sample", "bom.1", fields, found)


def computed(*values: str) -> Cell:
    """The last field over the sample facts."""
    return list(compile_rules(package(*values)).evaluate(sample_facts()).values())[-1]


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1 + 2 * 3", "7"),
        ("(1 + 2) * 3", "9"),
        ("10 - 2 - 3", "5"),
        ("- -2 - 1", "1"),
        ("1 / 3", "0." + "3" * 34),
        ("0.1 + 0.2", "0.3"),
        ("round(2.5, 0)", "2"),
        ("round(1 / 3, 4)", "0.3333"),
        ("2 * 3 == 6 and not false", True),
        ("true or false and false", True),
        ("not true or true", True),
        ('"iron" == "iron"', True),
        ('"a" != "b"', True),
        ("1 < 2", True),
        ("count(component.material)", "3"),
        ("sum(component.mass_kg)", "20.85"),
        ("sum(component.mass_kg * component.quantity)", "198.85"),
        ('sum(component.mass_kg * 2 where component.material == "aluminium")', "38"),
        ('count(component.material where component.material == "gold")', "0"),
        ("min(component.mass_kg)", "0.75"),
        ("max(round(component.mass_kg, 1))", "18.2"),
        ("any(component.hazardous)", True),
        ("all(component.hazardous or component.mass_kg > 0)", True),
        ("all(not component.hazardous)", False),
    ],
)
def test_expressions_have_these_values(expression: str, value: Cell) -> None:
    assert computed(expression) == value


def test_fields_may_use_the_fields_before_them() -> None:
    assert computed("sum(component.quantity)", "a * 2", "b == 202") is True
    with pytest.raises(RuleTypeError, match="no earlier field 'b'"):
        compile_rules(package("b + 1", "1"))


@pytest.mark.parametrize(
    "expression",
    [
        '1 + "kilogram"',
        "1 + true",
        "not 1",
        '- "a"',
        '"a" < "b"',
        "1 and true",
        '1 == "1"',
        "component.mass_kg",
        "component.mass_kg > 1",
        "component.color",
        "cell.mass_kg",
        "sum(component.material)",
        "sum(1)",
        "any(component.mass_kg)",
        "min(component.hazardous)",
        "sum(component.mass_kg, 2)",
        "sum(component.mass_kg where true)",
        "sum(component.mass_kg where component.mass_kg)",
        "round(component.material, 1)",
        "round(1)",
        "round(1, 1 + 1)",
        "round(1, 1.5)",
        "round(1, true)",
        "round(1, 13)",
        "average(component.mass_kg)",
        "unknown",
    ],
)
def test_what_does_not_mix_is_a_type_error_before_any_fact_is_seen(expression: str) -> None:
    with pytest.raises(RuleTypeError) as refused:
        compile_rules(package(expression))
    assert refused.value.code == "RULE_TYPE_ERROR"
    assert str(refused.value).startswith("rule a: ")


def test_a_check_is_a_yes_or_no() -> None:
    with pytest.raises(RuleTypeError, match="check 0"):
        compile_rules(package("1", checks=("a",)))
    with pytest.raises(ValidationError, match="check 0: the check is false"):
        compile_rules(package("1", checks=("a > 1",))).evaluate(sample_facts())


@pytest.mark.parametrize(
    "text",
    ["", "1 +", "(1", "1)", "1 2", '"open', "1 == 2 == 3", "a.", "sum()", "sum(a,)", "1 $ 2",
     "1.", ".5", "1e5", "0x10", "12345678901234567890", "and", "where", "a.b.c", "1 + )",
     "(" * 21 + "1" + ")" * 21, "+".join("1" * 300), "1" + " " * 2000, "not " * 250 + "true"],
)  # fmt: skip
def test_what_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        compile_rules(package(text))


def test_the_longest_expressions_are_walked_without_harm() -> None:
    assert computed("+".join("1" * 200)) == "200"
    assert computed("not " * 198 + "true") is True
    assert computed("(" * 19 + "1" + ")" * 19) == "1"


@pytest.mark.parametrize(
    "expression",
    ["1 / 0", "0 / 0", "1 / sum(component.recycled_percent where component.mass_kg > 100)",
     "min(component.mass_kg where false or component.mass_kg > 100)",
     "*".join(["999999999999999999"] * 8)],
)  # fmt: skip
def test_what_the_facts_make_impossible_is_a_validation_error(expression: str) -> None:
    rules = compile_rules(package(expression))
    with pytest.raises(ValidationError, match="rule a: "):
        rules.evaluate(sample_facts())


@given(st.text(max_size=60))
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    with suppress(PassportError):
        compile_rules(package(text))


NUMBERS = st.sampled_from(["1", "2.5", "0", "sum(component.mass_kg)", "count(component.origin)"])
TRUTHS = st.sampled_from(["true", "any(component.hazardous)", 'all(component.origin == "")'])


def combined(numbers: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    joined = st.tuples(numbers, st.sampled_from("+-*/"), numbers).map(" ".join)
    return (
        joined.map("({})".format) | numbers.map("- {}".format) | numbers.map("round({}, 3)".format)
    )


WELL_TYPED_NUMBERS = st.recursive(NUMBERS, combined, max_leaves=8)
COMPARED = st.tuples(
    WELL_TYPED_NUMBERS, st.sampled_from(["<", "<=", "==", "!=", ">", ">="]), WELL_TYPED_NUMBERS
).map(" ".join)


@given(WELL_TYPED_NUMBERS)
def test_what_is_typed_as_a_number_is_one(expression: str) -> None:
    rules = compile_rules(package(expression))
    try:
        value = rules.evaluate(sample_facts())["a"]
    except ValidationError:
        return
    assert isinstance(value, str)
    assert Decimal(value).is_finite()


@settings(max_examples=30)
@given(st.tuples(COMPARED | TRUTHS, st.sampled_from(["and", "or"]), COMPARED | TRUTHS))
def test_what_is_typed_as_a_truth_is_one(parts: tuple[str, str, str]) -> None:
    rules = compile_rules(package(" ".join(parts)))
    try:
        value = rules.evaluate(sample_facts())["a"]
    except ValidationError:
        return
    assert isinstance(value, bool)


def test_only_the_facts_of_types_that_rules_name_are_used() -> None:
    assert compile_rules(package("1 + 1")).used(sample_facts()) == []
    assert compile_rules(package("count(component.origin)")).used(sample_facts()) == sample_facts()


@pytest.mark.parametrize(
    "change",
    [{"schema_version": "bom.9"}, {"fields": []}, {"fields": [{"name": "A b", "value": "1"}]},
     {"fields": [{"name": "a", "value": "1"}] * 2}, {"extra": 1}, {"name": ""}, {"name": 5},
     {"name": "a\0b"},
     {"fields": [{"name": f"f{n}", "value": "1"} for n in range(501)]}],
)  # fmt: skip
def test_a_package_that_is_not_one_is_refused(change: dict[str, object]) -> None:
    source = json.dumps({**json.loads(SOURCE), **change}).encode()
    with pytest.raises(ValidationError):
        compile_rules(read_package(source))


def test_a_package_is_known_by_its_content_not_by_its_layout() -> None:
    spread = json.dumps(json.loads(SOURCE), indent=3, sort_keys=True).encode()
    assert read_package(spread).hash == sample_rules().hash


def test_rules_that_take_too_long_are_stopped_at_the_same_step_on_every_machine() -> None:
    facts = sample_facts() * 20_000
    terms = RULE_STEPS_MAX // len(facts) // 2 // 20
    expression = f"sum({' + '.join(['component.mass_kg'] * terms)})"
    enough = compile_rules(package(*[expression] * 10))
    assert enough.evaluate(facts)
    too_many = compile_rules(package(*[expression] * 21))
    with pytest.raises(ValidationError, match="10,000,000 steps"):
        too_many.evaluate(facts)
