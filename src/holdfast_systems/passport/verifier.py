"""Check a passport offline, against public keys that the caller trusts."""

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
from holdfast_systems.passport.qr import label_of, read_label
from holdfast_systems.passport.receipt import Hash, is_hash, read_receipt, version_id


class FactProof(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One fact, its place in the tree, and the hashes beside its way up."""

    fact: Fact
    index: int
    path: tuple[Hash, ...]


class Sealed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A passport as it is handed on; its QR code and proofs need not be there.

    The public key is for people to look at. It is never trusted, but must not mislead them either.
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
    """Every part of a passport is in one of these: it holds, or it does not, or it was not checked
    and why. A passport without problems is valid as far as it was checked."""

    held: tuple[str, ...]
    problems: tuple[str, ...]
    unchecked: tuple[str, ...]

    @property
    def is_valid(self) -> bool:
        return not self.problems


def verify(passport: Sealed, trusted: Mapping[str, bytes]) -> Verification:
    """Check all parts that are there; `trusted` has public keys by their ids."""
    held, problems, unchecked = [], [], []
    for part, check in _checks(passport, trusted):
        try:
            check()
            held.append(part)
        except ValidationError as error:
            problems.append(f"{part}: {error}")
        except (_NotThere, ReaderMissing) as reason:
            unchecked.append(f"{part}: {reason}")
    return Verification(tuple(held), tuple(problems), tuple(unchecked))


class _NotThere(Exception):
    def __init__(self) -> None:
        super().__init__("there is none")


def _checks(
    passport: Sealed, trusted: Mapping[str, bytes]
) -> Iterator[tuple[str, Callable[[], None]]]:
    yield "receipt", partial(_check_receipt, passport)
    yield "signature", partial(_check_signature, passport, trusted)
    yield "payload", partial(_check_payload, passport)
    for proof in passport.proofs:
        yield f"fact {proof.fact.fact_key}", partial(_check_fact, passport, proof)
    if not passport.proofs:
        yield "facts", _check_nothing
    yield "QR text", partial(_check_label, passport)
    yield "QR picture", partial(_check_picture, passport)


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
    shown = passport.public_key in (None, trusted[passport.key_id])
    _expect(shown, f"the public key beside it is not that of {passport.key_id!r}")
    try:
        key = Ed25519PublicKey.from_public_bytes(trusted[passport.key_id])
        key.verify(passport.signature, sha256(passport.receipt))
    except (InvalidSignature, ValueError):
        raise ValidationError(f"not made by the key {passport.key_id!r} for this receipt") from None


def _check_payload(passport: Sealed) -> None:
    receipt = read_receipt(passport.receipt)
    _expect(sha256(passport.payload).hex() == receipt.payload_hash, "its hash is another one")
    payload = read_payload(passport.payload)
    bound = ("tenant", "passport_id", "passport_version_id")
    same = all(getattr(payload, name) == getattr(receipt, name) for name in bound)
    _expect(same, "it names another passport")
    _expect(payload.rules.hash == receipt.rules_hash, "it names other rules")


def _check_fact(passport: Sealed, proof: FactProof) -> None:
    receipt = read_receipt(passport.receipt)
    _expect(all(is_hash(each) for each in proof.path), "its proof is not made of hashes")
    path = [bytes.fromhex(each) for each in proof.path]
    root = merkle.root_from_proof(proof.fact.leaf, proof.index, receipt.facts, path)
    _expect(root is not None and root.hex() == receipt.proof_root, "not in this passport's facts")


def _check_nothing() -> None:
    raise _NotThere


def _check_label(passport: Sealed) -> None:
    if passport.qr_text is None:
        raise _NotThere
    receipt = read_receipt(passport.receipt)
    _expect(read_label(passport.qr_text) == label_of(receipt), "it belongs to another passport")


def _check_picture(passport: Sealed) -> None:
    if passport.qr_png is None:
        raise _NotThere
    codes = read_codes(passport.qr_png)
    _expect(len(codes) == 1, f"it shows {len(codes)} QR codes that can be read, not one")
    receipt = read_receipt(passport.receipt)
    _expect(codes == [label_of(receipt).text.encode()], "it belongs to another passport")


def _expect(holds: bool, problem: str) -> None:
    if not holds:
        raise ValidationError(problem)
