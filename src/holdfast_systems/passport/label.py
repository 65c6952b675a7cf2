"""The printable label: a PDF with the QR code and the passport's first fields."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

import msgspec
import typst

from holdfast_systems.passport.errors import ValidationError
from holdfast_systems.passport.limits import LABEL_CHARS_MAX, LABEL_FIELDS_MAX
from holdfast_systems.passport.payload import read_payload
from holdfast_systems.passport.qr import make_code
from holdfast_systems.passport.records import Version
from holdfast_systems.passport.schema import Cell

# A version 10 code has 57 modules: at 300 dpi, each is 7 pixels wide. The label leaves more than
# the four modules around it that readers need.
SIDE_MM: Final = 34
_TEMPLATE: Final = Path(__file__).with_name("label.typ")
_RECEIPT_CHARS: Final = 12
_UNITS: Final = {"g": "g", "kg": "kg", "percent": "%", "kwh": "kWh", "v": "V", "ah": "Ah"}


def draw_label(version: Version) -> bytes:
    """Draw the label of a signed version that has a QR code."""
    if version.qr_text is None:
        raise ValidationError(f"passport version {version.id} has no QR code yet")
    payload = read_payload(version.payload.encode())
    shown = list(payload.fields.items())[:LABEL_FIELDS_MAX]
    data = {
        "side_mm": SIDE_MM,
        "svg": _svg(version.qr_text),
        "rules": _cut(payload.rules.name),
        "fields": [_field(name, cell) for name, cell in shown],
        "more": len(payload.fields) - len(shown),
        "passport_id": str(version.passport_id),
        "passport_version_id": str(version.id),
        "issued_at": f"{version.issued_at:%Y-%m-%d %H:%M} UTC",
        "build_id": _cut(version.build_id),
        "key_id": _cut(version.key_id or ""),
        "receipt": version.receipt_hash[:_RECEIPT_CHARS],
    }
    return typst.compile(
        _TEMPLATE,
        root=_TEMPLATE.parent,
        font_paths=_fonts(),
        sys_inputs={"data": msgspec.json.encode(data).decode()},
    )


def _svg(text: str) -> str:
    """Draw all dark modules as one shape: between separate ones, printers leave hairlines."""
    rows = [bytes(row) for row in make_code(text).matrix]
    path = "".join(
        f"M{x} {y}h1v1h-1z" for y, row in enumerate(rows) for x, dark in enumerate(row) if dark
    )
    side = len(rows)
    box = f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {side} {side}"'
    return f'<svg {box}><path d="{path}"/></svg>'


@cache
def _fonts() -> typst.Fonts:
    """Typst's own fonts, and those of the system for characters that these lack."""
    return typst.Fonts(include_system_fonts=True)


def _field(name: str, cell: Cell) -> dict[str, str]:
    if isinstance(cell, bool):
        cell = "yes" if cell else "no"
    words = name.strip("_").split("_")
    if len(words) > 1 and words[-1] in _UNITS:
        cell = f"{cell} {_UNITS[words.pop()]}"
    return {"name": _cut(" ".join(words).capitalize()), "value": _cut(cell)}


def _cut(text: str) -> str:
    return text if len(text) <= LABEL_CHARS_MAX else text[: LABEL_CHARS_MAX - 1] + "…"
