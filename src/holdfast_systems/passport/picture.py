"""Read the image of a QR code: a PNG exactly as `qr.draw` writes it.

Anything that could mislead a reader (colors, transparency, other chunks, bytes after the end) is
rejected, and every checksum must be right.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any

from holdfast_systems.passport.errors import ValidationError
from holdfast_systems.passport.limits import QR_SIDE_PIXELS_MAX

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
# Bit depth 1, grayscale, and the default methods.
_FORM = (1, 0, 0, 0, 0)
_TABLE = bytes.maketrans(b"01", b"\x00\xff")
_AS_IT_IS, _FROM_ABOVE = 0, 2


class ReaderMissing(Exception):
    """No QR code reader is installed."""


def read_codes(png: bytes) -> list[bytes]:
    """Return what the QR codes in the image say."""
    try:
        import zxingcpp
    except ImportError:
        raise ReaderMissing("zxing-cpp is not installed; run: pip install 'holdfast[qr]'") from None
    rows = _read_rows(png)
    picture = memoryview(b"".join(rows)).cast("B", shape=[len(rows), len(rows[0])])
    formats = zxingcpp.BarcodeFormats(zxingcpp.BarcodeFormat.QRCode)
    found: list[Any] = zxingcpp.read_barcodes(picture, formats=formats)
    return [bytes(each.bytes) for each in found]


def _read_rows(png: bytes) -> list[bytes]:
    """Return the rows of the image, one byte per pixel."""
    chunks = [*_chunks(png)]
    kinds = [kind for kind, _ in chunks]
    is_known = kinds in ([b"IHDR", b"IDAT", b"IEND"], [b"IHDR", b"pHYs", b"IDAT", b"IEND"])
    if not is_known or len(chunks[0][1]) != 13 or chunks[-1][1]:
        raise ValidationError("the image does not have the chunks of a QR code image")
    width, height, *form = struct.unpack(">IIBBBBB", chunks[0][1])
    if tuple(form) != _FORM or not 0 < width == height <= QR_SIDE_PIXELS_MAX:
        raise ValidationError(
            f"the image is not a black and white square of at most {QR_SIDE_PIXELS_MAX} pixels"
        )
    stride = (width + 7) // 8 + 1
    return [*_unfiltered(_inflated(chunks[-2][1], stride * height), stride, width)]


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    if not png.startswith(_SIGNATURE):
        raise ValidationError("the image is not a PNG")
    place = len(_SIGNATURE)
    while place < len(png):
        length = int.from_bytes(png[place : place + 4])
        end = place + 8 + length
        kind, data, check = png[place + 4 : place + 8], png[place + 8 : end], png[end : end + 4]
        if check != struct.pack(">I", zlib.crc32(kind + data)):
            raise ValidationError("the image is damaged")
        yield kind, data
        place = end + 4


def _inflated(data: bytes, length: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        pixels = stream.decompress(data, length + 1)
    except zlib.error:
        raise ValidationError("the image is damaged") from None
    if len(pixels) != length or not stream.eof or stream.unused_data:
        raise ValidationError("the image has more or fewer pixels than it says")
    return pixels


def _unfiltered(pixels: bytes, stride: int, width: int) -> Iterator[bytes]:
    above = bytes(stride - 1)
    for place in range(0, len(pixels), stride):
        how, row = pixels[place], pixels[place + 1 : place + stride]
        if how not in (_AS_IT_IS, _FROM_ABOVE):
            raise ValidationError("the image is not encoded like a QR code image")
        if how == _FROM_ABOVE:
            row = bytes((each + other) % 256 for each, other in zip(row, above, strict=True))
        above = row
        bits = f"{int.from_bytes(row):0{len(row) * 8}b}"
        yield bits[:width].encode().translate(_TABLE)
