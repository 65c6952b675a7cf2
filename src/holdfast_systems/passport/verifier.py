"""Check a passport offline, against public keys that the caller trusts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from holdfast_systems.passport import merkle
from holdfast_systems.passport.canonical import read_canonical, sha256
from holdfast_systems.passport.errors import ValidationError
from holdfast_systems.passport.facts import Fact
from holdfast_systems.passport.qr import label_of, read_label
from holdfast_systems.passport.receipt import read_receipt, version_id


class FactProof(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One fact, its place in the tree, and the hashes beside its way up."""

    fact: Fact
    index: int
    path: tuple[str, ...]


class Sealed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A passport as it is handed on; its QR code and proofs need not be there."""

    payload: bytes
    receipt: bytes
    signature: bytes
    key_id: str
    qr_text: str | None = None
    proofs: tuple[FactProof, ...] = ()


class Verification(msgspec.Struct, frozen=True):
    """What was checked and held, and what did not."""

    held: tuple[str, ...]
    problems: tuple[str, ...]

    @property
    def is_valid(self) -> bool:
        return not self.problems


def verify(passport: Sealed, trusted: Mapping[str, bytes]) -> Verification:
    """Check all parts that are there; `trusted` has public keys by their ids."""
    held, problems = [], []
    for part, check in _checks(passport, trusted):
        try:
            check()
            held.append(part)
        except ValidationError as error:
            problems.append(f"{part}: {error}")
    return Verification(tuple(held), tuple(problems))


def _checks(
    passport: Sealed, trusted: Mapping[str, bytes]
) -> Iterator[tuple[str, Callable[[], None]]]:
    yield "receipt", partial(_check_receipt, passport)
    yield "signature", partial(_check_signature, passport, trusted)
    yield "payload", partial(_check_payload, passport)
    for proof in passport.proofs:
        yield f"fact {proof.fact.fact_key}", partial(_check_fact, passport, proof)
    if passport.qr_text is not None:
        yield "QR", partial(_check_label, passport, passport.qr_text)


def _check_receipt(passport: Sealed) -> None:
    receipt = read_receipt(passport.receipt)
    expected = version_id(
        receipt.tenant,
        receipt.passport_id,
        receipt.snapshot_id,
        receipt.rules_id,
        receipt.build_id,
    )
    _expect(receipt.passport_version_id == expected, "its id does not follow from what it binds")


def _check_signature(passport: Sealed, trusted: Mapping[str, bytes]) -> None:
    if passport.key_id not in trusted:
        raise ValidationError(f"the key {passport.key_id!r} is not trusted")
    try:
        key = Ed25519PublicKey.from_public_bytes(trusted[passport.key_id])
        key.verify(passport.signature, sha256(passport.receipt))
    except (InvalidSignature, ValueError):
        raise ValidationError(f"not made by the key {passport.key_id!r} for this receipt") from None


def _check_payload(passport: Sealed) -> None:
    receipt = read_receipt(passport.receipt)
    payload = read_canonical(passport.payload)
    _expect(sha256(passport.payload).hex() == receipt.payload_hash, "its hash is another one")
    ids = {
        "tenant": receipt.tenant,
        "passport_id": str(receipt.passport_id),
        "passport_version_id": str(receipt.passport_version_id),
    }
    named = isinstance(payload, dict) and {name: payload.get(name) for name in ids} == ids
    _expect(named, "it names another passport")


def _check_fact(passport: Sealed, proof: FactProof) -> None:
    receipt = read_receipt(passport.receipt)
    try:
        path = [bytes.fromhex(each) for each in proof.path]
    except ValueError:
        raise ValidationError("its proof is not made of hashes") from None
    root = merkle.root_from_proof(proof.fact.leaf, proof.index, receipt.facts, path)
    _expect(root is not None and root.hex() == receipt.proof_root, "not in this passport's facts")


def _check_label(passport: Sealed, text: str) -> None:
    receipt = read_receipt(passport.receipt)
    _expect(read_label(text) == label_of(receipt), "it belongs to another passport")


def _expect(holds: bool, problem: str) -> None:
    if not holds:
        raise ValidationError(problem)
