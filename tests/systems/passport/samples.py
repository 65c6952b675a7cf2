"""A small battery, its rules, and keys that are no secret."""

from __future__ import annotations

import json
from base64 import b64encode
from datetime import UTC, datetime
from uuid import UUID

from holdfast_systems.passport import Order, SigningKeys, read_keys
from holdfast_systems.passport.facts import Fact, parse_document
from holdfast_systems.passport.rules.package import RulePackage, read_package
from holdfast_systems.passport.schema import BILL_OF_MATERIALS

TENANT = "acme"
DOCUMENT = b"""\
part,material,mass_kg,quantity,recycled_percent,hazardous
CELL-1,NMC811,1.85,96,12.5,yes
CASE-1,aluminium,18.250,1,60,no
PLATE-1,aluminium,0.75,4,,
"""
FIELDS = {
    "mass_kg": "sum(component.mass_kg * component.quantity)",
    "recycled_percent": (
        "round(sum(component.mass_kg * component.quantity * component.recycled_percent)"
        " / mass_kg, 2)"
    ),
    "is_hazardous": "any(component.hazardous)",
}
SOURCE = json.dumps(
    {
        "name": "label",
        "schema_version": "bom.1",
        "fields": [{"name": name, "value": value} for name, value in FIELDS.items()],
        "checks": [{"name": "has a mass", "holds": "mass_kg > 0"}],
    }
).encode()
ORDER = Order(
    passport_id=UUID("11111111-1111-4111-8111-111111111111"),
    snapshot_id=UUID("22222222-2222-4222-8222-222222222222"),
    rules_id=UUID("33333333-3333-4333-8333-333333333333"),
    build_id="build-7",
    issued_at=datetime(2026, 11, 16, 3, 0, tzinfo=UTC),
)


def sample_facts() -> list[Fact]:
    return parse_document(DOCUMENT, BILL_OF_MATERIALS)


def sample_rules() -> RulePackage:
    return read_package(SOURCE)


def keys_text(active: str, *others: str) -> str:
    """Keys whose bytes follow from their ids."""
    keys = {name: b64encode(name.encode().ljust(32, b".")).decode() for name in (active, *others)}
    return json.dumps({"active": active, "keys": keys})


def sample_keys(active: str = "key-1", *others: str) -> SigningKeys:
    return read_keys(keys_text(active, *others))
