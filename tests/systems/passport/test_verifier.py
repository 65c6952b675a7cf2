"""The verifier accepts the passport as it was issued, and nothing else."""

from __future__ import annotations

import hashlib
import json
import sys
import zlib
from base64 import b64encode
from collections.abc import Iterator
from functools import reduce
from importlib.util import find_spec
from operator import getitem
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast_systems.passport import Sealed, verify
from holdfast_systems.passport.canonical import canonical
from holdfast_systems.passport.compiler import compile_version, prove_fact
from holdfast_systems.passport.errors import ValidationError
from holdfast_systems.passport.facts import Fact
from holdfast_systems.passport.files import PAYLOAD, PICTURE, RECEIPT, read_files, write_files
from holdfast_systems.passport.limits import FILE_BYTES_MAX
from holdfast_systems.passport.qr import code_text_of, draw
from holdfast_systems.passport.receipt import read_receipt
from tests.support.services import missing
from tests.systems.passport.samples import ORDER, TENANT, sample_facts, sample_keys, sample_rules
from tests.systems.passport.test_qr import pixels

pytestmark = pytest.mark.heavy

TRUSTED = sample_keys().public_keys()
PARTS = ("receipt", "signature", "payload", "fact CELL-1", "QR text", "QR picture")


@pytest.fixture(autouse=True)
def reader() -> None:
    if find_spec("zxingcpp") is None:
        missing("zxing-cpp is not installed")


def issue() -> Sealed:
    compiled = compile_version(TENANT, ORDER, sample_rules(), sample_facts())
    signature = sample_keys().sign(compiled.receipt.hash)
    return Sealed(
        payload=compiled.payload,
        receipt=compiled.receipt.data,
        signature=signature.value,
        key_id=signature.key_id,
        qr_text=code_text_of(compiled.receipt).text,
        qr_png=draw(code_text_of(compiled.receipt).text, scale=2),
        public_key=signature.public_key,
        proofs=(prove_fact(sample_rules(), sample_facts(), "component", "CELL-1"),),
    )


PASSPORT = issue()
RECEIPT_OF_IT = read_receipt(PASSPORT.receipt)
(PROOF,) = PASSPORT.proofs


def problems(passport: Sealed) -> list[str]:
    """The parts that don't hold."""
    found = verify(passport, TRUSTED)
    assert set(found.held) | {each.partition(":")[0] for each in found.problems} >= {"receipt"}
    return [problem.partition(":")[0] for problem in found.problems]


def test_a_passport_as_it_was_issued_holds() -> None:
    assert verify(PASSPORT, TRUSTED).held == PARTS
    assert verify(PASSPORT, TRUSTED).is_valid


@given(st.sampled_from(["payload", "receipt", "signature", "qr_png"]), st.data())
def test_a_change_of_any_bit_is_found(part: str, data: st.DataObject) -> None:
    original: bytes = getattr(PASSPORT, part)
    place = data.draw(st.integers(0, len(original) - 1))
    bit = 1 << data.draw(st.integers(0, 7))
    changed = original[:place] + bytes([original[place] ^ bit]) + original[place + 1 :]
    found = problems(replace(PASSPORT, **{part: changed}))
    assert {"receipt": "signature", "qr_png": "QR picture"}.get(part, part) in found


@settings(max_examples=30)
@given(st.data())
def test_a_change_of_any_letter_of_the_qr_text_is_found(data: st.DataObject) -> None:
    text = PASSPORT.qr_text or ""
    place = data.draw(st.integers(0, len(text) - 1))
    letter = data.draw(st.characters().filter(lambda each: each != text[place]))
    changed = replace(PASSPORT, qr_text=text[:place] + letter + text[place + 1 :])
    assert problems(changed) == ["QR text"]


@pytest.mark.parametrize(
    "proof",
    [
        replace(PROOF, index=PROOF.index + 1),
        replace(PROOF, index=-1),
        replace(PROOF, path=PROOF.path[1:]),
        replace(PROOF, path=(*PROOF.path, PROOF.path[0])),
        replace(PROOF, path=("nonsense",)),
        replace(PROOF, path=(PROOF.path[0].upper(), *PROOF.path[1:])),
        replace(PROOF, path=(PROOF.path[0] + "\n", *PROOF.path[1:])),
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
    forged = replace(
        PASSPORT, payload=spread, receipt=signed, signature=signature, qr_text=None, qr_png=None
    )
    assert problems(forged) == ["payload"]


def test_a_receipt_that_binds_another_payload_is_found_though_it_is_signed() -> None:
    other = compile_version(
        TENANT, replace(ORDER, build_id="other"), sample_rules(), sample_facts()
    )
    signature = sample_keys().sign(other.receipt.hash).value
    swapped = replace(
        PASSPORT, receipt=other.receipt.data, signature=signature, qr_text=None, qr_png=None
    )
    assert problems(swapped) == ["payload"]


def test_a_payload_that_names_another_passport_is_found_though_its_hash_is_signed() -> None:
    order = replace(ORDER, build_id="other")
    other = compile_version(TENANT, order, sample_rules(), sample_facts()).receipt
    receipt = replace(other, payload_hash=hashlib.sha256(PASSPORT.payload).hexdigest())
    signature = sample_keys().sign(receipt.hash).value
    forged = replace(PASSPORT, receipt=receipt.data, signature=signature, qr_text=None, qr_png=None)
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
    write_files(tmp_path, PASSPORT)
    assert read_files(tmp_path) == replace(PASSPORT, public_key=TRUSTED["key-1"])
    forger = sample_keys("key-1x")
    found = json.loads((tmp_path / RECEIPT).read_bytes())
    assert {"public_key", "receipt_hash"} <= found.keys()
    signature = forger.sign(b"h" * 32)
    forged = replace(PASSPORT, signature=signature.value, public_key=signature.public_key)
    write_files(tmp_path, forged)
    assert problems(read_files(tmp_path)) == ["signature"]


def test_files_that_are_not_there_or_too_large_are_refused_unread(tmp_path: Path) -> None:
    write_files(tmp_path, PASSPORT)
    for name in (PAYLOAD, RECEIPT):
        before = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(before + b" " * FILE_BYTES_MAX)
        with pytest.raises(ValidationError, match=f"{name} .* larger"):
            read_files(tmp_path)
        (tmp_path / name).unlink()
        with pytest.raises(ValidationError, match=f"{name} can't be read"):
            read_files(tmp_path)
        (tmp_path / name).write_bytes(before)
    assert read_files(tmp_path).qr_png == PASSPORT.qr_png


def test_a_receipt_whose_hash_has_a_line_end_is_found_though_it_is_signed() -> None:
    receipt = json.loads(PASSPORT.receipt)
    spread = canonical({**receipt, "rules_hash": receipt["rules_hash"] + "\n"})
    signature = sample_keys().sign(hashlib.sha256(spread).digest()).value
    assert "receipt" in problems(replace(PASSPORT, receipt=spread, signature=signature))


def signed_anew(payload: dict[str, Any]) -> Sealed:
    """What an issuer would have signed that writes passports in another way."""
    data = canonical(payload)
    receipt = canonical(
        {**json.loads(PASSPORT.receipt), "payload_hash": hashlib.sha256(data).hexdigest()}
    )
    signature = sample_keys().sign(hashlib.sha256(receipt).digest()).value
    return Sealed(data, receipt, signature, "key-1")


@pytest.mark.parametrize(
    "change",
    [
        {"note": "recalled"},
        {"fields": {"mass_kg": 12}},
        {"fields": {"mass_kg": {"value": "12"}}},
        {"rules": {"name": "label", "hash": "0" * 64}},
        {"rules": {**json.loads(PASSPORT.payload)["rules"], "by": "somebody"}},
        {"format": "BPC-PASSPORT-2"},
        {"issued_at": "2026-11-16T03:00:00Z"},
        {"issued_at": "2026-11-16T03:00:00.000000+00:00"},
        {"issued_at": "yesterday"},
        {"passport_id": json.loads(PASSPORT.payload)["passport_id"].replace("-", "")},
    ],
)
def test_a_payload_of_another_shape_is_found_though_it_is_signed(change: dict[str, Any]) -> None:
    payload = json.loads(PASSPORT.payload)
    assert problems(signed_anew(payload)) == []
    assert problems(signed_anew({**payload, **change})) == ["payload"]
    for name in change.keys() & payload.keys():
        rest = {key: value for key, value in payload.items() if key != name}
        assert problems(signed_anew(rest)) == ["payload"]


def test_parts_that_are_not_there_are_told_as_unchecked() -> None:
    bare = replace(PASSPORT, qr_text=None, qr_png=None, proofs=())
    found = verify(bare, TRUSTED)
    assert (found.held, found.problems) == (PARTS[:3], ())
    assert found.unchecked == tuple(
        f"{part}: not included" for part in ("facts", "QR text", "QR picture")
    )


def test_a_picture_that_no_reader_is_here_for_is_told_as_unchecked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "zxingcpp", None)
    found = verify(replace(PASSPORT, qr_png=b"no picture at all"), TRUSTED)
    assert found.held == PARTS[:-1]
    assert found.unchecked == (
        "QR picture: zxing-cpp is not installed; run: pip install 'holdfast[qr]'",
    )


def repacked(png: bytes, **changes: bytes) -> bytes:
    """The picture with other content in some of its chunks, and checksums that fit."""
    made, place = png[:8], 8
    while place < len(png):
        end = place + 8 + int.from_bytes(png[place : place + 4])
        kind = png[place + 4 : place + 8]
        data = changes.get(kind.decode(), png[place + 8 : end])
        checksum = zlib.crc32(kind + data).to_bytes(4)
        made, place = made + len(data).to_bytes(4) + kind + data + checksum, end + 4
    return made


def beside_each_other(*texts: str) -> bytes:
    """One square picture of two codes, one above the other."""
    pictures = [pixels(draw(text, scale=3)) for text in texts]
    side = sum(len(rows) for rows in pictures)
    rows = [row.ljust(side, "1") for rows in pictures for row in rows]
    padded = [row.ljust((side + 7) // 8 * 8, "1") for row in rows]
    raw = b"".join(b"\0" + int(row, 2).to_bytes(len(row) // 8) for row in padded)
    header = side.to_bytes(4) * 2 + bytes([1, 0, 0, 0, 0])
    return repacked(draw("x"), IHDR=header, IDAT=zlib.compress(raw))


TEXT = PASSPORT.qr_text or ""
PNG = draw(TEXT)
HEADER = PNG[16:29]


@pytest.mark.parametrize("border", [0, 1, 4])
def test_a_picture_with_or_without_a_quiet_zone_is_read(border: int) -> None:
    drawn = replace(PASSPORT, qr_png=draw(TEXT, border=border))
    assert verify(drawn, TRUSTED).held == PARTS


@pytest.mark.parametrize(
    ("picture", "problem"),
    [
        (draw(TEXT.replace("pv=", "pv=0")), "belongs to another"),
        (draw(code_text_of(replace(RECEIPT_OF_IT, facts=9)).text), "belongs to another"),
        (draw(TEXT + "\n"), "belongs to another"),
        (beside_each_other(TEXT, TEXT.lower()), "2 QR codes"),
        (beside_each_other(TEXT.lower()), "belongs to another"),
        (repacked(PNG, IDAT=zlib.compress(bytes(83 * 650))), "0 QR codes"),
        (repacked(PNG, IDAT=zlib.compress(bytes(83 * 651))), "more or fewer pixels"),
        (repacked(PNG, IDAT=zlib.compress(bytes(10**7))), "more or fewer pixels"),
        (repacked(PNG, IDAT=zlib.compress(b"\4" * 83 * 650)), "not encoded like"),
        (repacked(PNG, IDAT=b"nonsense"), "damaged"),
        (repacked(PNG, IHDR=HEADER[:8] + b"\x08" + HEADER[9:]), "black and white"),
        (repacked(PNG, IHDR=b"\0\1\0\0" * 2 + HEADER[8:]), "black and white"),
        (repacked(PNG, IHDR=HEADER[:12]), "chunks"),
        (repacked(PNG, IEND=b"?"), "chunks"),
        (PNG + PNG[8:], "chunks"),
        (PNG + b"?", "damaged"),
        (PNG[:-1], "damaged"),
        (PNG[:8], "chunks"),
        (b"", "not a PNG"),
    ],
)
def test_a_picture_of_anything_else_is_found(picture: bytes, problem: str) -> None:
    found = verify(replace(PASSPORT, qr_png=picture), TRUSTED)
    assert found.held == PARTS[:-1]
    assert problem in found.problems[0]


FILES = st.sampled_from([PAYLOAD, RECEIPT, PICTURE])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


def holds(folder: Path) -> bool:
    try:
        return verify(read_files(folder), TRUSTED).is_valid
    except ValidationError:
        return False


@settings(max_examples=100)
@given(FILES, st.integers(0), st.binary(max_size=2), st.integers(0, 2))
def test_files_hold_as_they_were_written_and_with_no_other_byte(
    folder: Path, name: str, place: int, put: bytes, taken: int
) -> None:
    write_files(folder, PASSPORT)
    assert holds(folder)
    content = (folder / name).read_bytes()
    place %= len(content) + 1
    changed = content[:place] + put + content[place + taken :]
    (folder / name).write_bytes(changed)
    assert holds(folder) == (changed == content)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to every value of a document."""
    yield path
    entries = value.items() if isinstance(value, dict) else ()
    for key, inner in enumerate(value) if isinstance(value, list) else entries:
        yield from places(inner, (*path, key))


def written(folder: Path, document: Any) -> bool:
    """Write the receipt as `write_files` does, whatever it says."""
    text = msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
    (folder / RECEIPT).write_bytes(text)
    return holds(folder)


@settings(max_examples=100)
@given(st.data())
def test_no_field_of_the_files_can_be_added_left_out_or_changed(
    folder: Path, data: st.DataObject
) -> None:
    write_files(folder, PASSPORT)
    document = json.loads((folder / RECEIPT).read_bytes())
    assert written(folder, document)
    path = data.draw(st.sampled_from([path for path in places(document) if path]))
    *above, last = path
    parent = reduce(getitem, above, document)
    event(f"{path[0]}")
    match data.draw(st.sampled_from(["change", "leave out", "add"])):
        case "change":
            other: st.SearchStrategy[Any] = (
                st.none() | st.booleans() | st.integers(-3, 3) | st.text() | st.just([])
            )
            parent[last] = data.draw(other.filter(lambda value: value != parent[last]))
        case "leave out":
            del parent[last]
        case _ if isinstance(parent, dict):
            parent[data.draw(st.text().filter(lambda name: name not in parent))] = "x"
        case _:
            parent.append("x")
    # These may be left out as a whole, and are told as unchecked then.
    left_out = document.get("qr_text", "") is None or document.get("proofs") == []
    assert written(folder, document) == left_out
    if left_out:
        event("left out")
        assert verify(read_files(folder), TRUSTED).unchecked


def test_a_false_hash_key_or_field_in_the_files_is_refused(folder: Path) -> None:
    write_files(folder, PASSPORT)
    document = json.loads((folder / RECEIPT).read_bytes())
    assert not written(folder, {**document, "receipt_hash": "0" * 64})
    stranger = sample_keys("stranger").public_keys()["stranger"]
    assert not written(folder, {**document, "public_key": b64encode(stranger).decode()})
    (proof,) = document["proofs"]
    noted = {**proof, "fact": {**proof["fact"], "note": "tested by nobody"}}
    assert not written(folder, {**document, "proofs": [noted]})
    assert written(folder, document)
