"""Decisions are read from `privileges.toml`, and a mistake in one is told."""

from __future__ import annotations

import pytest

from holdfast.domain.errors import ConfigurationError
from holdfast.domain.privileges import ROLES, Function, Grant, Table, read_decisions


def test_decisions_are_read_with_their_columns_rows_and_callers() -> None:
    found = read_decisions(
        """
        [tables.orders]
        tenant = "tenant"
        api = "select, insert"
        delivery = "select, update(status, ended_at), maintain"
        rows.delivery = "queue = 'webhooks.delivery'"
        [views.open_orders]
        readonly = "select"
        [functions.close_order]
        execute = ["api", "caller"]
        definer = true
        [functions.order_day]
        execute = ["all"]
        """,
        "orders",
    )
    rows = {"delivery": "queue = 'webhooks.delivery'"}
    assert found.tables == [Table("orders", "tenant", None, rows)]
    assert found.views == ["open_orders"]
    assert found.functions == [Function("close_order", True), Function("order_day", False)]
    assert found.grants == [
        Grant("table", "orders", "api", "SELECT"),
        Grant("table", "orders", "api", "INSERT"),
        Grant("table", "orders", "delivery", "SELECT"),
        Grant("table", "orders", "delivery", "UPDATE", "status"),
        Grant("table", "orders", "delivery", "UPDATE", "ended_at"),
        Grant("table", "orders", "delivery", "MAINTAIN"),
        Grant("view", "open_orders", "readonly", "SELECT"),
        Grant("function", "close_order", "api", "EXECUTE"),
        Grant("function", "close_order", "caller", "EXECUTE"),
        *(Grant("function", "order_day", role, "EXECUTE") for role in ROLES),
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[tables.a]\napi = 'select'", "table a needs either tenant or shared"),
        ("[tables.a]\nshared = 'x'\ntenant = 'y'", "table a needs either tenant or shared"),
        ("[tables.a]\nshared = 'x'\napi = 'delete'", "api can't have 'delete'"),
        ("[tables.a]\nshared = 'x'\napi = 'select insert'", "api can't have 'select insert'"),
        ("[tables.a]\nshared = 'x'\napi = 'maintain(b)'", r"api can't have 'maintain\(b\)'"),
        ("[views.a]\napi = 'maintain'", "api can't have 'maintain'"),
        ("[tables.a]\nshared = 'x'\nowner = 'select'", "unexpected 'owner'"),
        ("[tables.a]\nshared = 'x'\nrows.owner = 'true'", "unexpected 'owner'"),
        ("[functions.a]\nexecute = ['public']", "unexpected 'public'"),
        ("[sequences.a]", "unexpected 'sequences'"),
        ("[tables", "Expected"),
    ],
)
def test_a_mistake_is_told_with_its_file(text: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"^privileges of shop: .*{told}"):
        read_decisions(text, "privileges of shop")
