"""What is encrypted comes back whole or not at all, and no error repeats a key."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import CannotDecrypt, ConfigurationError, Encrypted, UnknownSecretKey
from holdfast.domain.encryption import KEY_BYTES, SecretKeys, make_keys

KEYS = SecretKeys({"now": bytes(range(32)), "old": bytes(range(1, 33))})
OTHER = SecretKeys({"now": bytes(range(2, 34))})
LEFT = base64.b64encode(b"the left half is a secret, truly").decode()
RIGHT = base64.b64encode(b"the right half is a secret, also").decode()

words = st.lists(st.text(max_size=8), max_size=4)


@given(st.binary(max_size=300), words)
def test_any_bytes_come_back(plain: bytes, about: list[str]) -> None:
    encrypted = KEYS.encrypt(plain, *about)

    assert KEYS.decrypt(encrypted, *about) == plain
    assert encrypted.key_id == "now"
    assert len(plain) < 8 or plain not in encrypted.data


@given(st.binary(max_size=50), words, words)
def test_a_text_that_is_about_something_else_does_not_come_back(
    plain: bytes, about: list[str], another: list[str]
) -> None:
    encrypted = KEYS.encrypt(plain, *about)

    if about != another:
        with pytest.raises(CannotDecrypt, match="changed or moved"):
            KEYS.decrypt(encrypted, *another)


def test_words_that_read_alike_when_joined_are_told_apart() -> None:
    encrypted = KEYS.encrypt(b"x", "ab", "c")

    for about in (["a", "bc"], ["abc"], ["ab", "c", ""], []):
        with pytest.raises(CannotDecrypt):
            KEYS.decrypt(encrypted, *about)


@given(st.binary(max_size=50), st.data())
def test_one_flipped_bit_or_a_missing_end_is_noticed(plain: bytes, data: st.DataObject) -> None:
    key_id, whole = KEYS.encrypt(plain, "row")
    place = data.draw(st.integers(0, 8 * len(whole) - 1))
    flipped = bytearray(whole)
    flipped[place // 8] ^= 1 << place % 8
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]

    for damaged in (bytes(flipped), cut, whole + b"\0"):
        with pytest.raises(CannotDecrypt):
            KEYS.decrypt(Encrypted(key_id, damaged), "row")


@given(st.binary(max_size=50))
def test_only_the_same_key_decrypts(plain: bytes) -> None:
    encrypted = KEYS.encrypt(plain, "row")

    with pytest.raises(CannotDecrypt, match="another key of that name"):
        OTHER.decrypt(encrypted, "row")
    with pytest.raises(CannotDecrypt):
        KEYS.decrypt(Encrypted("old", encrypted.data), "row")
    with pytest.raises(UnknownSecretKey, match="'gone' is unknown here"):
        KEYS.decrypt(Encrypted("gone", encrypted.data), "row")


def test_the_same_text_never_looks_the_same() -> None:
    assert len({KEYS.encrypt(b"again", "row").data for _ in range(100)}) == 100


def test_the_first_key_encrypts_and_all_decrypt() -> None:
    first, second = make_keys("first"), make_keys("second")
    before = SecretKeys.parse(first, "it").encrypt(b"text", "row")
    both = SecretKeys.parse(f" {second} , {first}\n", "it")

    assert both.ids == ("second", "first")
    assert both.encrypt(b"text", "row").key_id == "second"
    assert both.decrypt(before, "row") == b"text"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "number 1 needs a name"),
        (LEFT, "number 1 needs a name"),
        (LEFT.rstrip("="), "number 1 needs a name"),
        (f":{LEFT}", "number 1 needs a name"),
        (f"a b:{LEFT}", "number 1 needs a name"),
        (f"{'n' * 41}:{LEFT}", "number 1 needs a name"),
        (f"left:{LEFT},", "number 2 needs a name"),
        (f"left:{LEFT},right", "number 2 has a key of 0 bytes, not 32"),
        (f"left:{LEFT};right:{RIGHT}", "number 1 has a key that is not base64"),
        (f"left:{LEFT[:-4]}", "number 1 has a key of 30 bytes, not 32"),
        (f"left:{LEFT[:-1]}", "number 1 has a key that is not base64"),
        (f"left:{LEFT.encode().hex()}", "number 1 has a key of 66 bytes, not 32"),
        (f"left:{LEFT},left:{RIGHT}", "number 2 repeats a name"),
        (f"left:{LEFT},right:{LEFT}", "number 2 repeats a key"),
        (f"left:é{LEFT[1:]}", "number 1 has a key that is not base64"),
    ],
)
def test_bad_keys_are_refused_without_being_repeated(text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^it must be .*; {problem}") as caught:
        SecretKeys.parse(text, "it")

    said = f"{caught.value} {caught.value.__cause__} {caught.value.__context__}"
    pieces = (LEFT[:12], LEFT[12:24], RIGHT[:12], "left", "secret,")
    assert not any(piece in said for piece in pieces)


@given(st.text(max_size=80), st.sampled_from([LEFT, RIGHT, LEFT[4:], LEFT.replace("=", "")]))
def test_whatever_is_around_a_key_no_error_repeats_it(around: str, key: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        SecretKeys.parse(f"{around}{key}:{around[::-1]}", "it")

    assert key[:12] not in str(caught.value)


def test_a_new_key_has_a_name_of_its_own_unless_one_is_given() -> None:
    assert len({make_keys() for _ in range(100)}) == 100
    name, _, key = make_keys("k2").partition(":")
    assert (name, len(base64.b64decode(key))) == ("k2", KEY_BYTES)
    with pytest.raises(ConfigurationError, match="use 1 to 40 letters"):
        make_keys("k 2")
