"""A rule package: the fields of a passport, and the checks that it must pass."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal

import msgspec

from holdfast_systems.passport.canonical import canonical, decimal_text, sha256
from holdfast_systems.passport.errors import (
    DocumentTooLarge,
    PassportError,
    RuleTypeError,
    ValidationError,
)
from holdfast_systems.passport.facts import Fact
from holdfast_systems.passport.limits import NAME_CHARS_MAX, RULES_BYTES_MAX, RULES_MAX
from holdfast_systems.passport.names import check_name
from holdfast_systems.passport.rules.evaluation import Evaluator, Value
from holdfast_systems.passport.rules.syntax import Expression, parse
from holdfast_systems.passport.rules.types import Checker
from holdfast_systems.passport.schema import Cell, Kind, Schema, find_schema

_NAME = re.compile(r"[a-z_][a-z0-9_]*")


class FieldRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    value: str


class CheckRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    holds: str


class RulePackage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fields may use the fields before them; checks may use all fields."""

    name: str
    schema_version: str
    fields: tuple[FieldRule, ...]
    checks: tuple[CheckRule, ...] = ()

    @property
    def source(self) -> bytes:
        return canonical(msgspec.to_builtins(self))

    @property
    def hash(self) -> str:
        return sha256(self.source).hex()


class CompiledRules(msgspec.Struct, frozen=True):
    """Rules that passed the type check."""

    schema: Schema
    fact_types: frozenset[str]
    fields: tuple[tuple[str, Expression], ...]
    checks: tuple[tuple[str, Expression], ...]

    def used(self, facts: Sequence[Fact]) -> list[Fact]:
        return [fact for fact in facts if fact.fact_type in self.fact_types]

    def evaluate(self, facts: Sequence[Fact]) -> dict[str, Cell]:
        """Compute the fields over facts in order; raise ValidationError if a check is false."""
        evaluator = Evaluator(self.schema, facts)
        for name, expression in self.fields:
            with _about(name):
                evaluator.fields[name] = evaluator.value(expression)
        for name, expression in self.checks:
            with _about(name):
                if evaluator.value(expression) is not True:
                    raise ValidationError("the check is false")
        return {name: _cell(value) for name, value in evaluator.fields.items()}


def read_package(source: bytes) -> RulePackage:
    if len(source) > RULES_BYTES_MAX:
        raise DocumentTooLarge(f"a rule package can have at most {RULES_BYTES_MAX} bytes")
    try:
        package = msgspec.json.decode(source, type=RulePackage)
    except (ValueError, RecursionError) as error:
        raise ValidationError(f"not a valid rule package: {error}") from None
    if not package.fields or len(package.fields) + len(package.checks) > RULES_MAX:
        raise ValidationError(f"a rule package must have 1 to {RULES_MAX} rules")
    check_name("name of a rule package", package.name)
    return package


def compile_rules(package: RulePackage) -> CompiledRules:
    """Check the types of every expression, before any passport uses them."""
    schema = find_schema(package.schema_version)
    checker = Checker(schema)
    fields: dict[str, Expression] = {}
    for rule in package.fields:
        with _about(rule.name):
            if not _NAME.fullmatch(rule.name) or rule.name in fields:
                raise ValidationError("not a valid field name, or used twice")
            fields[rule.name] = expression = parse(rule.value)
            checker.declare(rule.name, checker.scalar(expression))
    checks = tuple((rule.name, _check(checker, rule)) for rule in package.checks)
    return CompiledRules(schema, frozenset(checker.fact_types), tuple(fields.items()), checks)


def _check(checker: Checker, rule: CheckRule) -> Expression:
    with _about(rule.name):
        expression = parse(rule.holds)
        if (kind := checker.scalar(expression)) is not Kind.BOOLEAN:
            raise RuleTypeError(f"a check must be a boolean, not a {kind}")
        return expression


@contextmanager
def _about(name: str) -> Iterator[None]:
    """Add the rule's name to errors."""
    try:
        yield
    except PassportError as error:
        raise type(error)(f"rule {name[:NAME_CHARS_MAX]}: {error}") from None


def _cell(value: Value) -> Cell:
    return decimal_text(value) if isinstance(value, Decimal) else value
