"""Find an invoice's number, date and totals by the labels in front of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Final

_NUMBER: Final = re.compile(r"\binvoice\s*+(?:no\b\.?|nr\b\.?|number\b|#)\s*+:?\s*+(\S+)", re.I)
_DATE: Final = re.compile(r"^(?:(?:invoice|issue)\s+)?date\s*:?\s+(.+)$", re.I)
_SUBTOTAL: Final = re.compile(r"^(?:sub-?total|net(?:\s+(?:amount|total))?)\b", re.I)
_TAX: Final = re.compile(r"^(?:vat|(?:sales\s+)?tax)\b", re.I)
_TOTAL: Final = re.compile(r"^(?:grand\s+)?(?:total|amount\s+due)\b", re.I)

_AMOUNT: Final = re.compile(r"(?<![\w.,])-?\d[\d.,' \u00a0]*(?![\w%])")
_CENTS: Final = re.compile(r"[.,](\d{2})$")
_CURRENCIES: Final = {"€": "EUR", "$": "USD", "£": "GBP"}
_CURRENCY: Final = re.compile(r"\b(?:EUR|USD|GBP|CHF)\b|[€$£]")

_ISO_DATE: Final = re.compile(r"^(\d{4})-(\d{2})-(\d{2})$")
_DOTTED_DATE: Final = re.compile(r"^(\d{1,2})\.(\d{1,2})\.(\d{4})$")
_WRITTEN_DATE: Final = re.compile(r"^(\d{1,2})\.? ([a-z]+) (\d{4})$", re.I)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


@dataclass(slots=True)
class Invoice:
    number: str | None = None
    date: date | None = None
    currency: str | None = None
    subtotal: Decimal | None = None
    tax: Decimal | None = None
    total: Decimal | None = None


def read_invoice(lines: Iterable[str]) -> Invoice:
    """Take the first number and date, and the last of each amount, which follows all items."""
    invoice = Invoice()
    for line in lines:
        if invoice.number is None and (match := _NUMBER.search(line)):
            invoice.number = match[1]
        if invoice.date is None and (match := _DATE.match(line)):
            invoice.date = parse_date(match[1].strip())
        for name, label in (("subtotal", _SUBTOTAL), ("tax", _TAX), ("total", _TOTAL)):
            if label.match(line) and (amount := last_amount(line)) is not None:
                setattr(invoice, name, amount)
                invoice.currency = invoice.currency or _currency(line)
    return invoice


def last_amount(line: str) -> Decimal | None:
    amounts = [parse_amount(match[0]) for match in _AMOUNT.finditer(line)]
    return amounts[-1] if amounts else None


def parse_amount(text: str) -> Decimal | None:
    """Read both 1,190.00 and 1.190,00: two digits after the last separator are cents."""
    text = text.strip().rstrip(".,'")
    cents = _CENTS.search(text)
    whole = re.sub(r"[^\d-]", "", text[: cents.start()] if cents else text)
    if not whole.strip("-"):
        return None
    return Decimal(f"{whole}.{cents[1] if cents else '00'}")


def _currency(line: str) -> str | None:
    match = _CURRENCY.search(line)
    return _CURRENCIES.get(match[0], match[0]) if match else None


def parse_date(text: str) -> date | None:
    """Read 2026-11-16, 16.11.2026 and 16 November 2026, but nothing ambiguous."""
    if match := _ISO_DATE.match(text):
        return _date(int(match[1]), int(match[2]), int(match[3]))
    if match := _DOTTED_DATE.match(text):
        return _date(int(match[3]), int(match[2]), int(match[1]))
    if (match := _WRITTEN_DATE.match(text)) and match[2].lower()[:3] in _MONTHS:
        month = _MONTHS.index(match[2].lower()[:3]) + 1
        return _date(int(match[3]), month, int(match[1]))
    return None


def _date(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None
