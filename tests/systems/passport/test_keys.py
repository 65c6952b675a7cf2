"""Keys come from a file or the environment, and change without a restart; none is ever shown."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from holdfast_systems.passport import keys_from_environment, read_keys
from holdfast_systems.passport.errors import SigningKeyMissing
from tests.systems.passport.samples import keys_text, sample_keys

pytestmark = pytest.mark.heavy

HASH = b"h" * 32


def is_signed_by(public_key: bytes, signature: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, HASH)
    except InvalidSignature:
        return False
    return True


def test_the_active_key_signs_and_the_older_ones_stay_known() -> None:
    old, new = sample_keys("2025-b"), sample_keys("2026-a", "2025-b")
    signature = new.sign(HASH)
    assert signature.key_id == "2026-a"
    assert set(new.public_keys()) == {"2026-a", "2025-b"}
    assert is_signed_by(new.public_keys()["2026-a"], signature.value)
    assert not is_signed_by(new.public_keys()["2025-b"], signature.value)
    assert is_signed_by(new.public_keys()["2025-b"], old.sign(HASH).value)


def test_a_changed_file_counts_at_the_next_signature(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    environment = {"BPC_SIGNING_KEYS_FILE": str(file), "BPC_SIGNING_KEYS": keys_text("unused")}
    file.write_text(keys_text("key-1"))
    assert keys_from_environment(environment).active == "key-1"
    file.write_text(keys_text("key-2", "key-1"))
    assert keys_from_environment(environment).active == "key-2"


def test_the_environment_may_hold_the_keys_themselves() -> None:
    assert keys_from_environment({"BPC_SIGNING_KEYS": keys_text("key-1")}).active == "key-1"


SECRET = b64encode(b"s" * 31).decode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense " + SECRET,
        f'{{"active": "a", "keys": {{"b": "{b64encode(b"s" * 32).decode()}"}}}}',
        f'{{"active": "a", "keys": {{"a": "{SECRET}"}}}}',
        f'{{"active": "a", "keys": {{"a": "!{SECRET}"}}}}',
        f'{{"active": "a", "keys": "{SECRET}"}}',
        f'{{"active": "a", "{SECRET}": {{}}}}',
        '{"active": "", "keys": {"": "' + b64encode(b"s" * 32).decode() + '"}}',
        '{"active": "\\u0000", "keys": {"\\u0000": "' + b64encode(b"s" * 32).decode() + '"}}',
        f'{{"active": "{SECRET}", "keys": {{"a": "{b64encode(b"s" * 32).decode()}"}}}}',
    ],
)
def test_keys_that_can_not_be_read_are_missing_and_nothing_of_them_is_told(text: str) -> None:
    with pytest.raises(SigningKeyMissing) as missing:
        keys_from_environment({"BPC_SIGNING_KEYS": text})
    assert missing.value.code == "SIGNING_KEY_MISSING"
    assert SECRET[:8] not in str(missing.value)
    assert missing.value.__context__ is None or missing.value.__suppress_context__


def test_a_file_that_is_not_there_or_too_large_is_missing(tmp_path: Path) -> None:
    for name, size in (("none", None), ("large", 70_000)):
        if size:
            (tmp_path / name).write_bytes(b"x" * size)
        with pytest.raises(SigningKeyMissing):
            keys_from_environment({"BPC_SIGNING_KEYS_FILE": str(tmp_path / name)})
    with pytest.raises(SigningKeyMissing):
        keys_from_environment({})


def test_no_secret_is_shown() -> None:
    keys = read_keys(keys_text("key-1"))
    assert b64encode(b"key-1".ljust(32, b".")).decode()[:8] not in f"{keys!r}{keys}{vars(keys)}"
