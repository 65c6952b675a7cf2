"""The code is read by a reader that nobody here wrote, and says what the passport says."""

from __future__ import annotations

import shutil
import struct
import subprocess
import zlib
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast_systems.passport.errors import QrEncodeFailed, ValidationError
from holdfast_systems.passport.qr import CodeText, draw, read_code_text
from tests.support.services import missing

pytestmark = pytest.mark.heavy

HASHES = st.binary(min_size=32, max_size=32)
CODES = st.builds(CodeText, st.uuids(), HASHES, HASHES, HASHES)
CODE = CodeText(UUID("550e8400-e29b-41d4-a716-446655440000"), b"p" * 32, b"r" * 32, b"h" * 32)
QR_VERSION_10_MODULES = 57


def scan(path: Path) -> str:
    reader = shutil.which("zbarimg") or missing("zbarimg (zbar-tools) is not installed")
    scanned = subprocess.run([reader, "--raw", "-q", path], capture_output=True, check=True)
    return scanned.stdout.decode().strip()


def pixels(png: bytes) -> list[str]:
    """The rows of a picture in black and white: 0 is black."""
    width, height, depth, color = struct.unpack(">IIBB", png[16:26])
    assert (depth, color) in ((1, 0), (1, 3))
    data, place = b"", 8
    while place < len(png):
        (length,) = struct.unpack(">I", png[place : place + 4])
        if png[place + 4 : place + 8] == b"IDAT":
            data += png[place + 8 : place + 8 + length]
        place += length + 12
    raw, stride = zlib.decompress(data), (width + 7) // 8 + 1
    rows, above = [], bytes(stride - 1)
    for number in range(height):
        how, row = raw[number * stride], raw[number * stride + 1 : (number + 1) * stride]
        assert how in (0, 2), "as it is, or as the difference to the row above"
        above = bytes((a + b) % 256 for a, b in zip(row, above, strict=True)) if how else row
        rows.append("".join(f"{byte:08b}" for byte in above)[:width])
    return rows


def test_the_picture_on_disk_is_read_by_zbar(tmp_path: Path) -> None:
    path = tmp_path / "qr.png"
    path.write_bytes(draw(CODE.text))
    assert scan(path) == CODE.text


def test_the_text_has_212_characters_and_fits_version_10() -> None:
    assert len(CODE.text) == 212
    assert CODE.text.startswith("BPC1|pv=550e8400-e29b-41d4-a716-446655440000|ph=OBYHA4DQ")
    assert "=" not in CODE.text.partition("ph=")[2].replace("|pr=", "").replace("|rh=", "")
    assert len(pixels(draw(CODE.text))) == (QR_VERSION_10_MODULES + 2 * 4) * 10


def test_a_quiet_zone_of_four_modules_is_around_it_unless_it_is_switched_off() -> None:
    rows = pixels(draw(CODE.text))
    assert all(set(row) == {"1"} for row in rows[:40] + rows[-40:])
    assert all(set(row[:40] + row[-40:]) == {"1"} for row in rows)
    assert rows[40][40:110] == "0" * 70
    bare = pixels(draw(CODE.text, border=0))
    assert len(bare) == QR_VERSION_10_MODULES * 10
    assert bare[0][:70] == "0" * 70


@pytest.mark.parametrize("text", [CODE.text, "x"])
def test_the_level_is_m_whatever_fits(text: str) -> None:
    """The first two modules of the format information are dark and light for this level alone."""
    row = pixels(draw(text, scale=1, border=0))[8]
    assert row[:2] == "01"


@given(CODES)
def test_what_was_written_is_read(code: CodeText) -> None:
    assert read_code_text(code.text) == code


@settings(max_examples=30)
@given(CODES, st.data())
def test_a_text_that_was_changed_anywhere_is_another_code_or_none(
    code: CodeText, data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(code.text) - 1))
    letter = data.draw(st.characters().filter(lambda each: each != code.text[place]))
    changed = code.text[:place] + letter + code.text[place + 1 :]
    with suppress(ValidationError):
        assert read_code_text(changed) != code


def test_bits_that_no_hash_has_are_not_ignored() -> None:
    """52 letters hold 260 bits, of which a hash takes 256."""
    last = CODE.text[-1]
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
    with pytest.raises(ValidationError, match="only valid form"):
        read_code_text(CODE.text[:-1] + letters[letters.index(last) + 1])


def test_a_text_that_fits_no_code_is_refused() -> None:
    with pytest.raises(QrEncodeFailed) as refused:
        draw("x" * 3000)
    assert refused.value.code == "QR_ENCODE_FAILED"
