"""Verify a passport offline, with public keys that the caller trusts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from holdfast_systems.passport import merkle
from holdfast_systems.passport.canonical import sha256
from holdfast_systems.passport.errors import ValidationError
from holdfast_systems.passport.facts import Fact
from holdfast_systems.passport.payload import read_payload
from holdfast_systems.passport.picture import ReaderMissing, read_codes
from holdfast_systems.passport.qr import code_text_of, read_code_text
from holdfast_systems.passport.receipt import Hash, is_hash, read_receipt, version_id


class FactProof(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One fact, its index in the tree, and the sibling hashes on its path to the root."""

    fact: Fact
    index: int
    path: tuple[Hash, ...]


class Sealed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A passport as others receive it. The QR code and the proofs are optional.

    The public key is informational. It is never trusted, but it must match the trusted one.
    """

    payload: bytes
    receipt: bytes
    signature: bytes
    key_id: str
    qr_text: str | None = None
    qr_png: bytes | None = None
    public_key: bytes | None = None
    proofs: tuple[FactProof, ...] = ()


class Verification(msgspec.Struct, frozen=True):
    """Every part of a passport is in one of these lists, problems and unchecked ones with a reason.

    A passport without problems is valid as far as it was checked.
    """

    held: tuple[str, ...]
    problems: tuple[str, ...]
    unchecked: tuple[str, ...]

    @property
    def is_valid(self) -> bool:
        return not self.problems


def verify(passport: Sealed, trusted: Mapping[str, bytes]) -> Verification:
    """Check all parts that are included. `trusted` maps key ids to public keys."""
    held, problems, unchecked = [], [], []
    for part, check in _checks(passport, trusted):
        if check is None:
            unchecked.append(f"{part}: not included")
            continue
        try:
            check()
            held.append(part)
        except ValidationError as error:
            problems.append(f"{part}: {error}")
        except ReaderMissing as reason:
            unchecked.append(f"{part}: {reason}")
    return Verification(tuple(held), tuple(problems), tuple(unchecked))


def _checks(
    passport: Sealed, trusted: Mapping[str, bytes]
) -> Iterator[tuple[str, Callable[[], None] | None]]:
    yield "receipt", partial(_check_receipt, passport)
    yield "signature", partial(_check_signature, passport, trusted)
    yield "payload", partial(_check_payload, passport)
    for proof in passport.proofs:
        yield f"fact {proof.fact.fact_key}", partial(_check_fact, passport, proof)
    if not passport.proofs:
        yield "facts", None
    text, picture = passport.qr_text, passport.qr_png
    yield "QR text", None if text is None else partial(_check_code_text, passport, text)
    yield "QR picture", None if picture is None else partial(_check_picture, passport, picture)


def _check_receipt(passport: Sealed) -> None:
    receipt = read_receipt(passport.receipt)
    made_from = (receipt.passport_id, receipt.snapshot_id, receipt.rules_id, receipt.build_id)
    expected = version_id(receipt.tenant, *made_from)
    _expect(receipt.passport_version_id == expected, "its id does not match what it binds")


def _check_signature(passport: Sealed, trusted: Mapping[str, bytes]) -> None:
    if passport.key_id not in trusted:
        raise ValidationError(f"key {passport.key_id!r} is not trusted")
    shown = passport.public_key in (None, trusted[passport.key_id])
    _expect(shown, f"the included public key is not that of {passport.key_id!r}")
    try:
        key = Ed25519PublicKey.from_public_bytes(trusted[passport.key_id])
        key.verify(passport.signature, sha256(passport.receipt))
    except (InvalidSignature, ValueError):
        raise ValidationError(f"not made by key {passport.key_id!r} for this receipt") from None


def _check_payload(passport: Sealed) -> None:
    receipt = read_receipt(passport.receipt)
    _expect(sha256(passport.payload).hex() == receipt.payload_hash, "it is not the one signed")
    payload = read_payload(passport.payload)
    bound = ("tenant", "passport_id", "passport_version_id")
    same = all(getattr(payload, name) == getattr(receipt, name) for name in bound)
    _expect(same, "it names another passport")
    _expect(payload.rules.hash == receipt.rules_hash, "it names other rules")


def _check_fact(passport: Sealed, proof: FactProof) -> None:
    receipt = read_receipt(passport.receipt)
    _expect(all(is_hash(each) for each in proof.path), "its proof does not consist of hashes")
    path = [bytes.fromhex(each) for each in proof.path]
    root = merkle.root_from_proof(proof.fact.leaf, proof.index, receipt.facts, path)
    _expect(root is not None and root.hex() == receipt.proof_root, "it is not in this passport")


def _check_code_text(passport: Sealed, text: str) -> None:
    receipt = read_receipt(passport.receipt)
    _expect(read_code_text(text) == code_text_of(receipt), "it belongs to another passport")


def _check_picture(passport: Sealed, picture: bytes) -> None:
    codes = read_codes(picture)
    _expect(len(codes) == 1, f"it has {len(codes)} QR codes that can be read, not one")
    receipt = read_receipt(passport.receipt)
    _expect(codes == [code_text_of(receipt).text.encode()], "it belongs to another passport")


def _expect(holds: bool, problem: str) -> None:
    if not holds:
        raise ValidationError(problem)
