"""Battery passports: compiled from documents by rules, signed and provable, with a QR code."""

from holdfast_systems.passport.compiler import Order
from holdfast_systems.passport.errors import PassportError
from holdfast_systems.passport.keys import SigningKeys, keys_from_environment, read_keys
from holdfast_systems.passport.preset import BPC
from holdfast_systems.passport.system import Passport
from holdfast_systems.passport.verifier import FactProof, Sealed, Verification, verify

__all__ = [
    "BPC",
    "FactProof",
    "Order",
    "Passport",
    "PassportError",
    "Sealed",
    "SigningKeys",
    "Verification",
    "keys_from_environment",
    "read_keys",
    "verify",
]
