"""The printed label is read by readers that nobody here wrote."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import cv2
import numpy
import pypdfium2  # type: ignore[import-untyped]
import pytest
import zxingcpp
from msgspec.structs import replace

from holdfast_systems.passport.compiler import compile_version
from holdfast_systems.passport.errors import ValidationError
from holdfast_systems.passport.label import SIDE_MM, draw_label
from holdfast_systems.passport.payload import read_payload
from holdfast_systems.passport.qr import code_text_of
from holdfast_systems.passport.records import Version
from tests.support.services import missing
from tests.systems.passport.samples import ORDER, TENANT, sample_facts, sample_rules
from tests.systems.passport.test_qr import QR_VERSION_10_MODULES, scan

pytestmark = pytest.mark.heavy

DOTS_PER_MM = 300 / 25.4


def make_version() -> Version:
    compiled = compile_version(TENANT, ORDER, sample_rules(), sample_facts())
    receipt = compiled.receipt
    return Version(
        id=receipt.passport_version_id,
        tenant=TENANT,
        passport_id=receipt.passport_id,
        snapshot_id=receipt.snapshot_id,
        rules_id=receipt.rules_id,
        build_id=receipt.build_id,
        issued_at=ORDER.issued_at,
        payload=compiled.payload.decode(),
        payload_hash=receipt.payload_hash,
        proof_root=receipt.proof_root,
        receipt=receipt.data.decode(),
        receipt_hash=receipt.hash.hex(),
        key_id="key-1",
        signature=b"s" * 64,
        public_key=b"k" * 32,
        signed_at=ORDER.issued_at,
        qr_text=code_text_of(receipt).text,
        qr_png=b"",
        created_at=ORDER.issued_at,
    )


VERSION = make_version()


def render(pdf: bytes, scale: float) -> tuple[memoryview, int, int]:
    """The only page in shades of gray; 1 is 72 dpi."""
    document = pypdfium2.PdfDocument(pdf)
    assert len(document) == 1
    bitmap = document[0].render(scale=scale, grayscale=True)
    rows = bytes(bitmap.buffer)
    width, height, stride = bitmap.width, bitmap.height, bitmap.stride
    pixels = b"".join(rows[y * stride : y * stride + width] for y in range(height))
    document.close()
    return memoryview(pixels).cast("B", shape=[height, width]), width, height


def read(picture: memoryview) -> tuple[str, int]:
    """What zxing reads, and the width of the code in pixels."""
    (found,) = zxingcpp.read_barcodes(picture)
    corners = found.position
    return found.text, corners.top_right.x - corners.top_left.x


def test_zxing_reads_it_at_the_printers_resolution_and_at_half_of_it() -> None:
    pdf = draw_label(VERSION)
    for dots_per_inch in (300, 150):
        picture, _, _ = render(pdf, dots_per_inch / 72)
        assert read(picture)[0] == VERSION.qr_text


def test_the_code_is_wider_than_two_centimeters_and_has_its_quiet_zone() -> None:
    picture, width, height = render(draw_label(VERSION), 300 / 72)
    _, code_width = read(picture)
    assert code_width / DOTS_PER_MM == pytest.approx(SIDE_MM, abs=1)
    assert code_width / DOTS_PER_MM > 20
    (found,) = zxingcpp.read_barcodes(picture)
    left, top = found.position.top_left.x, found.position.top_left.y
    right, bottom = found.position.bottom_right.x, found.position.bottom_right.y
    zone = round(4 * code_width / QR_VERSION_10_MODULES) - 2
    for y in range(max(0, top - zone), min(height, bottom + zone)):
        for x in range(left - zone, min(width, right + zone)):
            inside = left - 2 <= x <= right + 2 and top - 2 <= y <= bottom + 2
            assert inside or picture[y, x] > 200, f"ink in the quiet zone at {x}, {y}"


def test_zbar_reads_the_page_that_poppler_prints(tmp_path: Path) -> None:
    if shutil.which("pdftoppm") is None:
        missing("pdftoppm (poppler-utils) is not installed")
    path = tmp_path / "label.pdf"
    path.write_bytes(draw_label(VERSION))
    page = ["pdftoppm", "-r", "300", "-png", "-singlefile", str(path), str(tmp_path / "label")]
    subprocess.run(page, check=True, capture_output=True)
    assert scan(tmp_path / "label.png") == VERSION.qr_text


def test_opencv_reads_it_at_the_printers_resolution() -> None:
    picture, _, _ = render(draw_label(VERSION), 300 / 72)
    text, _, _ = cv2.QRCodeDetector().detectAndDecode(numpy.asarray(picture))
    assert text == VERSION.qr_text


def test_it_says_what_the_passport_says() -> None:
    document = pypdfium2.PdfDocument(draw_label(VERSION))
    text = document[0].get_textpage().get_text_bounded()
    document.close()
    for shown in ("198.85 kg", "Mass", "yes", str(VERSION.id), "build-7", "2026-11-16 03:00 UTC"):
        assert shown in text


def test_one_with_many_and_long_fields_still_is_one_page() -> None:
    payload = read_payload(VERSION.payload.encode())
    fields = {f"a_rather_long_name_of_field_number_{n}": "w" * 900 for n in range(40)}
    long = replace(payload, fields=fields, rules=replace(payload.rules, name="名" * 200))
    version = replace(VERSION, payload=long.data.decode(), build_id="M" * 200, key_id="k" * 200)
    picture, _, _ = render(draw_label(version), 300 / 72)
    assert read(picture)[0] == VERSION.qr_text


def test_the_same_version_gives_the_same_bytes() -> None:
    assert draw_label(VERSION) == draw_label(VERSION)


def test_a_version_without_a_code_has_no_label() -> None:
    with pytest.raises(ValidationError, match="no QR code"):
        draw_label(replace(VERSION, qr_text=None))
