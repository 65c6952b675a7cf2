"""Compile a passport from facts and rules: the same bytes on any machine, at any time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from holdfast_systems.passport import merkle
from holdfast_systems.passport.canonical import sha256, time_text
from holdfast_systems.passport.errors import DocumentTooLarge, ValidationError
from holdfast_systems.passport.facts import Fact, in_order
from holdfast_systems.passport.limits import PAYLOAD_BYTES_MAX
from holdfast_systems.passport.names import check_name
from holdfast_systems.passport.payload import Payload, RulesUsed
from holdfast_systems.passport.receipt import Receipt, version_id
from holdfast_systems.passport.rules.package import RulePackage, compile_rules
from holdfast_systems.passport.verifier import FactProof


class Order(msgspec.Struct, frozen=True):
    """What to compile. `issued_at` is part of it, so that a retry gives the same bytes."""

    passport_id: UUID
    snapshot_id: UUID
    rules_id: UUID
    build_id: str
    issued_at: datetime

    def version_id(self, tenant: str) -> UUID:
        return version_id(tenant, self.passport_id, self.snapshot_id, self.rules_id, self.build_id)

    def about(self, tenant: str) -> tuple[str, UUID]:
        return "PassportVersion", self.version_id(tenant)


class Compiled(msgspec.Struct, frozen=True):
    payload: bytes
    receipt: Receipt


def compile_version(
    tenant: str, order: Order, package: RulePackage, facts: Sequence[Fact]
) -> Compiled:
    rules = compile_rules(package)
    used = in_order(rules.used(facts))
    if not used:
        raise ValidationError(f"snapshot {order.snapshot_id} has no facts for these rules")
    check_name("build id", order.build_id)
    payload = Payload(
        format="BPC-PASSPORT-1",
        tenant=tenant,
        passport_id=order.passport_id,
        passport_version_id=order.version_id(tenant),
        issued_at=time_text(order.issued_at),
        rules=RulesUsed(package.name, package.hash),
        schema_version=package.schema_version,
        fields=rules.evaluate(used),
    ).data
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise DocumentTooLarge(
            f"the passport has {len(payload)} bytes; the limit is {PAYLOAD_BYTES_MAX}"
        )
    receipt = Receipt(
        tenant=tenant,
        passport_id=order.passport_id,
        passport_version_id=order.version_id(tenant),
        snapshot_id=order.snapshot_id,
        rules_id=order.rules_id,
        rules_hash=package.hash,
        build_id=order.build_id,
        payload_hash=sha256(payload).hex(),
        proof_root=merkle.root([fact.leaf for fact in used]).hex(),
        facts=len(used),
    )
    return Compiled(payload, receipt)


def prove_fact(
    package: RulePackage, facts: Sequence[Fact], fact_type: str, fact_key: str
) -> FactProof:
    for proof in prove_facts(package, facts, [fact_key]):
        if proof.fact.fact_type == fact_type:
            return proof
    raise ValidationError(f"this passport does not use a {fact_type} {fact_key!r}")


def prove_facts(
    package: RulePackage, facts: Sequence[Fact], fact_keys: Sequence[str] | None
) -> tuple[FactProof, ...]:
    """Prove the facts with these keys, or all."""
    used = in_order(compile_rules(package).used(facts))
    if unknown := set(fact_keys or ()) - {fact.fact_key for fact in used}:
        raise ValidationError(f"this passport does not use {min(unknown)!r}")
    prove = merkle.prover([fact.leaf for fact in used])
    return tuple(
        FactProof(fact, index, tuple(each.hex() for each in prove(index)))
        for index, fact in enumerate(used)
        if fact_keys is None or fact.fact_key in fact_keys
    )
