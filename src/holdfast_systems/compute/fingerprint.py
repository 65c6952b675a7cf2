"""One name for the same inputs of the same tenant to the same version of a definition."""

from __future__ import annotations

import hashlib
from typing import Any
from uuid import UUID

import rfc8785


def canonical(value: Any) -> bytes:
    return rfc8785.dumps(value)


def inputs_hash(tenant: UUID | None, definition: str, version: str, inputs: Any) -> str:
    """Hash one object, in which no value can run into the next."""
    named = {
        "tenant": None if tenant is None else str(tenant),
        "definition": definition,
        "version": version,
        "inputs": inputs,
    }
    return hashlib.sha256(canonical(named)).hexdigest()
