"""The same inputs give the same bytes: on any machine, in any order, at any time."""

from __future__ import annotations

import json
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_systems.passport import merkle
from holdfast_systems.passport.canonical import read_canonical, sha256
from holdfast_systems.passport.compiler import compile_version, prove_fact
from holdfast_systems.passport.errors import ValidationError
from holdfast_systems.passport.facts import Fact
from holdfast_systems.passport.rules.package import FieldRule, RulePackage
from tests.systems.passport.samples import ORDER, TENANT, sample_facts, sample_rules

pytestmark = pytest.mark.heavy

VERSION_ID = "da460c0c-bad7-590c-b027-1e53c008ce6b"
PAYLOAD_HASH = "99df00c77d198b75313a652ced974a4221b2da4d4d050cb79deaf31b204be8a2"
PROOF_ROOT = "a3682bde2bb1cfe4dddc38cf05dda552d25289015b8c07528489e029fb212ee9"
RECEIPT_HASH = "e035e699487cc78e52ce32b218399206b26ec0791d34bfa1fe7e504e46ef51b8"


def test_the_bytes_are_these_on_every_machine() -> None:
    compiled = compile_version(TENANT, ORDER, sample_rules(), sample_facts())
    payload = read_canonical(compiled.payload)
    assert payload["fields"] == {
        "mass_kg": "198.85",
        "recycled_percent": "16.67",
        "is_hazardous": True,
    }
    assert payload["issued_at"] == "2026-11-16T03:00:00.000000Z"
    assert str(compiled.receipt.passport_version_id) == VERSION_ID
    assert compiled.receipt.payload_hash == sha256(compiled.payload).hex() == PAYLOAD_HASH
    assert compiled.receipt.proof_root == PROOF_ROOT
    assert compiled.receipt.hash.hex() == RECEIPT_HASH


@given(st.permutations(sample_facts()))
def test_the_order_in_which_facts_come_changes_nothing(facts: list[Fact]) -> None:
    expected = compile_version(TENANT, ORDER, sample_rules(), sample_facts())
    assert compile_version(TENANT, ORDER, sample_rules(), facts) == expected


def test_the_leaves_are_the_facts_by_type_and_key() -> None:
    compiled = compile_version(TENANT, ORDER, sample_rules(), sample_facts())
    leaves = [
        json.dumps(msgspec.to_builtins(fact), sort_keys=True, separators=(",", ":")).encode()
        for fact in sorted(sample_facts(), key=lambda fact: fact.fact_key)
    ]
    assert compiled.receipt.proof_root == merkle.root(leaves).hex()
    assert compiled.receipt.facts == len(leaves)


def test_the_version_does_not_depend_on_the_time_of_issue() -> None:
    later = msgspec.structs.replace(ORDER, issued_at=ORDER.issued_at + timedelta(seconds=1))
    assert later.version_id(TENANT) == ORDER.version_id(TENANT)


@pytest.mark.parametrize("part", ["passport_id", "snapshot_id", "rules_id"])
def test_the_version_depends_on_all_that_it_is_made_of(part: str) -> None:
    other = msgspec.structs.replace(ORDER, **{part: ORDER.passport_id})
    changed = msgspec.structs.replace(other, build_id="another")
    assert ORDER.version_id(TENANT) != ORDER.version_id("another tenant")
    assert ORDER.version_id(TENANT) != changed.version_id(TENANT)


def test_a_passport_without_facts_is_refused() -> None:
    with pytest.raises(ValidationError, match="no facts"):
        compile_version(TENANT, ORDER, sample_rules(), [])
    unrelated = RulePackage("sample", "bom.1", (FieldRule("a", "1"),))
    with pytest.raises(ValidationError, match="no facts"):
        compile_version(TENANT, ORDER, unrelated, sample_facts())


def test_only_facts_that_were_used_can_be_proved() -> None:
    proof = prove_fact(sample_rules(), sample_facts(), "component", "CELL-1")
    assert proof.fact.fact_key == "CELL-1"
    with pytest.raises(ValidationError, match="'CELL-2'"):
        prove_fact(sample_rules(), sample_facts(), "component", "CELL-2")


@pytest.mark.parametrize("build_id", ["", "x" * 201, "a\nb"])
def test_a_build_id_is_a_name(build_id: str) -> None:
    with pytest.raises(ValidationError, match="1 to 200 characters"):
        compile_version(
            TENANT,
            msgspec.structs.replace(ORDER, build_id=build_id),
            sample_rules(),
            sample_facts(),
        )
