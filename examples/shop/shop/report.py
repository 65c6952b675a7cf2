"""What `report_sales` computes in a child process, which imports this module and no other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import NamedTuple


class Sale(NamedTuple):
    product: str
    quantity: int
    price: Decimal


@dataclass
class Report:
    revenue: Decimal = Decimal(0)
    sold: dict[str, int] = field(default_factory=dict)


def summarize(sales: Sequence[Sale]) -> Report:
    sold: dict[str, int] = defaultdict(int)
    for sale in sales:
        sold[sale.product] += sale.quantity
    revenue = sum((sale.quantity * sale.price for sale in sales), Decimal(0))
    return Report(revenue=revenue, sold=dict(sold))
