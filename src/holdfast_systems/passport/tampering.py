"""Find out whether what is stored of a passport is still what was issued."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from holdfast_systems.passport import merkle
from holdfast_systems.passport.errors import PassportError
from holdfast_systems.passport.facts import Fact, in_order
from holdfast_systems.passport.receipt import read_receipt
from holdfast_systems.passport.records import Version
from holdfast_systems.passport.rules.package import RulePackage, compile_rules
from holdfast_systems.passport.verifier import Sealed, verify

_BOUND = (
    *("tenant", "passport_id", "snapshot_id", "rules_id", "build_id"),
    *("payload_hash", "proof_root"),
)


def find_problems(
    version: Version, package: RulePackage, facts: Sequence[Fact], trusted: Mapping[str, bytes]
) -> list[str]:
    """Compare a version's row with its receipt, its signature, its QR code and its facts. A
    signature by a key that is not in `trusted` is left out."""
    try:
        return [*_find(version, package, facts, trusted)]
    except PassportError as error:
        return [str(error)]


def _find(
    version: Version, package: RulePackage, facts: Sequence[Fact], trusted: Mapping[str, bytes]
) -> Iterator[str]:
    receipt = read_receipt(version.receipt.encode())
    if receipt.hash.hex() != version.receipt_hash:
        yield "receipt_hash is not the hash of the receipt"
    for name in _BOUND:
        if getattr(receipt, name) != getattr(version, name):
            yield f"{name} is not the one in the receipt"
    if package.hash != receipt.rules_hash:
        yield "the rules are not those that were used"
    used = in_order(compile_rules(package).used(facts))
    root = merkle.root([fact.leaf for fact in used]).hex()
    if (root, len(used)) != (receipt.proof_root, receipt.facts):
        yield "the facts are not those that were used"
    sealed = Sealed(
        payload=version.payload.encode(),
        receipt=version.receipt.encode(),
        signature=version.signature or b"",
        key_id=version.key_id or "",
        qr_text=version.qr_text,
        qr_png=version.qr_png,
        public_key=version.public_key,
    )
    for problem in verify(sealed, trusted).problems:
        if not problem.startswith("signature:") or version.key_id in trusted:
            yield problem
