"""Whether a client accepts XML, by its Accept header (RFC 9110, section 12.5.1)."""

from __future__ import annotations

_XML = ("application/xml", "text/xml", "application/*", "*/*")


def accepts_xml(header: str | None) -> bool:
    """The most specific matching range decides. Without a header, anything is accepted."""
    if header is None or not header.strip():
        return True
    weights: dict[str, float] = {}
    for entry in header.split(","):
        kind, *parameters = (part.strip().lower() for part in entry.split(";"))
        weights[kind] = _weight(parameters)
    known = [weights[kind] for kind in _XML if kind in weights]
    return bool(known) and known[0] > 0


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0
