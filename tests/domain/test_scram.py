"""The verifier of a password accepts the exchange that RFC 7677 shows."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode

import pytest

from holdfast.domain.scram import scram_verifier

SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
NONCES = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
EXCHANGE = (
    f"n=user,r=rOprNGfwEbeRWgbNEkqO,r={NONCES},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r={NONCES}"
).encode()
PROOF = b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
SERVER_SIGNATURE = b64decode("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_the_verifier_accepts_the_proof_of_the_password_and_signs_as_the_server() -> None:
    scheme, salted, keys = scram_verifier("pencil", SALT).split("$")
    assert (scheme, salted) == ("SCRAM-SHA-256", "4096:W22ZaJ0SNY7soEsUEjb6gQ==")
    stored_key, server_key = map(b64decode, keys.split(":"))
    signature = hmac.digest(stored_key, EXCHANGE, "sha256")
    client_key = bytes(one ^ other for one, other in zip(PROOF, signature, strict=True))
    assert hashlib.sha256(client_key).digest() == stored_key
    assert hmac.digest(server_key, EXCHANGE, "sha256") == SERVER_SIGNATURE


def test_a_password_that_would_have_to_be_normalized_is_refused() -> None:
    with pytest.raises(UnicodeEncodeError):
        scram_verifier("pâté", SALT)
