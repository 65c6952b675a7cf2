"""The verifier accepts the passport as it was issued, and nothing else."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast_systems.passport import Sealed, verify
from holdfast_systems.passport.canonical import canonical
from holdfast_systems.passport.compiling import compile_version, prove_fact
from holdfast_systems.passport.errors import ValidationError
from holdfast_systems.passport.facts import Fact
from holdfast_systems.passport.files import PAYLOAD, RECEIPT, read_files, write_files
from holdfast_systems.passport.limits import FILE_BYTES_MAX
from holdfast_systems.passport.qr import label_of
from tests.systems.passport.samples import ORDER, TENANT, sample_facts, sample_keys, sample_rules

TRUSTED = sample_keys().public_keys()
PARTS = ("receipt", "signature", "payload", "fact CELL-1", "QR")


def issue() -> Sealed:
    compiled = compile_version(TENANT, ORDER, sample_rules(), sample_facts())
    signature = sample_keys().sign(compiled.receipt.hash)
    return Sealed(
        payload=compiled.payload,
        receipt=compiled.receipt.data,
        signature=signature.value,
        key_id=signature.key_id,
        qr_text=label_of(compiled.receipt).text,
        proofs=(prove_fact(sample_rules(), sample_facts(), "component", "CELL-1"),),
    )


PASSPORT = issue()
(PROOF,) = PASSPORT.proofs


def problems(passport: Sealed) -> list[str]:
    """The parts that don't hold."""
    found = verify(passport, TRUSTED)
    assert set(found.held) | {each.partition(":")[0] for each in found.problems} >= {"receipt"}
    return [problem.partition(":")[0] for problem in found.problems]


def test_a_passport_as_it_was_issued_holds() -> None:
    assert verify(PASSPORT, TRUSTED).held == PARTS
    assert verify(PASSPORT, TRUSTED).is_valid


@given(st.sampled_from(["payload", "receipt", "signature"]), st.data())
def test_a_change_of_any_bit_is_found(part: str, data: st.DataObject) -> None:
    original: bytes = getattr(PASSPORT, part)
    place = data.draw(st.integers(0, len(original) - 1))
    bit = 1 << data.draw(st.integers(0, 7))
    changed = original[:place] + bytes([original[place] ^ bit]) + original[place + 1 :]
    found = problems(replace(PASSPORT, **{part: changed}))
    assert ("signature" if part == "receipt" else part) in found


@settings(max_examples=30)
@given(st.data())
def test_a_change_of_any_letter_of_the_qr_text_is_found(data: st.DataObject) -> None:
    text = PASSPORT.qr_text or ""
    place = data.draw(st.integers(0, len(text) - 1))
    letter = data.draw(st.characters().filter(lambda each: each != text[place]))
    assert problems(replace(PASSPORT, qr_text=text[:place] + letter + text[place + 1 :])) == ["QR"]


@pytest.mark.parametrize(
    "proof",
    [
        replace(PROOF, index=PROOF.index + 1),
        replace(PROOF, index=-1),
        replace(PROOF, path=PROOF.path[1:]),
        replace(PROOF, path=(*PROOF.path, PROOF.path[0])),
        replace(PROOF, path=("nonsense",)),
        replace(PROOF, path=PROOF.path[::-1]),
        replace(PROOF, fact=replace(PROOF.fact, payload={**PROOF.fact.payload, "mass_kg": "1"})),
        replace(PROOF, fact=replace(PROOF.fact, schema_version="bom.2")),
        replace(PROOF, fact=Fact("component", "CELL-1", "bom.1", {})),
    ],
)
def test_a_fact_that_is_not_in_it_can_not_be_proved(proof: object) -> None:
    assert problems(replace(PASSPORT, proofs=(proof,))) == ["fact CELL-1"]


def test_the_payload_must_be_in_canonical_form() -> None:
    spread = json.dumps(json.loads(PASSPORT.payload)).encode()
    receipt = json.loads(PASSPORT.receipt)
    receipt["payload_hash"] = hashlib.sha256(spread).hexdigest()
    signed = canonical(receipt)
    signature = sample_keys().sign(hashlib.sha256(signed).digest()).value
    forged = replace(PASSPORT, payload=spread, receipt=signed, signature=signature, qr_text=None)
    assert problems(forged) == ["payload"]


def test_a_receipt_that_binds_another_payload_is_found_though_it_is_signed() -> None:
    other = compile_version(
        TENANT, replace(ORDER, build_id="other"), sample_rules(), sample_facts()
    )
    signature = sample_keys().sign(other.receipt.hash).value
    swapped = replace(PASSPORT, receipt=other.receipt.data, signature=signature, qr_text=None)
    assert problems(swapped) == ["payload"]


def test_a_payload_that_names_another_passport_is_found_though_its_hash_is_signed() -> None:
    order = replace(ORDER, build_id="other")
    other = compile_version(TENANT, order, sample_rules(), sample_facts()).receipt
    receipt = replace(other, payload_hash=hashlib.sha256(PASSPORT.payload).hexdigest())
    signature = sample_keys().sign(receipt.hash).value
    forged = replace(PASSPORT, receipt=receipt.data, signature=signature, qr_text=None)
    assert verify(forged, TRUSTED).problems == ("payload: it names another passport",)


def test_a_receipt_whose_id_does_not_follow_from_it_is_found() -> None:
    receipt = {**json.loads(PASSPORT.receipt), "tenant": "someone else"}
    assert "receipt" in problems(replace(PASSPORT, receipt=canonical(receipt)))


def test_a_receipt_in_another_form_is_found_though_it_is_signed() -> None:
    receipt = json.loads(PASSPORT.receipt)
    shouted = canonical({**receipt, "passport_version_id": receipt["passport_version_id"].upper()})
    signature = sample_keys().sign(hashlib.sha256(shouted).digest()).value
    assert "receipt" in problems(replace(PASSPORT, receipt=shouted, signature=signature))


def test_only_trusted_keys_count() -> None:
    signature = sample_keys("key-2").sign(b"?" * 32)
    assert problems(replace(PASSPORT, key_id="key-2", signature=signature.value)) == ["signature"]
    stranger = sample_keys("stranger").public_keys()["stranger"]
    assert not verify(PASSPORT, {"key-1": stranger}).is_valid
    assert not verify(PASSPORT, {"key-1": b"short"}).is_valid
    assert not verify(PASSPORT, {}).is_valid


def test_the_public_key_in_the_file_is_not_trusted_by_itself(tmp_path: Path) -> None:
    write_files(tmp_path, PASSPORT, TRUSTED["key-1"])
    assert read_files(tmp_path) == PASSPORT
    forger = sample_keys("key-1x")
    found = json.loads((tmp_path / RECEIPT).read_bytes())
    assert {"public_key", "receipt_hash"} <= found.keys()
    forged = replace(PASSPORT, signature=forger.sign(b"h" * 32).value)
    write_files(tmp_path, forged, forger.public_keys()["key-1x"])
    assert problems(read_files(tmp_path)) == ["signature"]


def test_files_that_are_not_there_or_too_large_are_refused_unread(tmp_path: Path) -> None:
    write_files(tmp_path, PASSPORT, TRUSTED["key-1"])
    for name in (PAYLOAD, RECEIPT):
        before = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(before + b" " * FILE_BYTES_MAX)
        with pytest.raises(ValidationError, match=f"{name} .* larger"):
            read_files(tmp_path)
        (tmp_path / name).unlink()
        with pytest.raises(ValidationError, match=f"{name} can't be read"):
            read_files(tmp_path)
        (tmp_path / name).write_bytes(before)
    assert read_files(tmp_path) == PASSPORT
