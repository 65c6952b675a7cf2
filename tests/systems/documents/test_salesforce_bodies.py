"""Whatever a caller sends, it is answered or refused as the API does."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast_systems.documents.salesforce.local.app import Server
from holdfast_systems.documents.salesforce.local.calls import Answer, Call
from holdfast_systems.documents.salesforce.local.errors import ApiError
from holdfast_systems.documents.salesforce.local.users import INTEGRATION
from tests.systems.documents.organization import DATA, DOCUMENT

pytestmark = pytest.mark.heavy

leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from([DOCUMENT, f"{DATA}/sobjects/{DOCUMENT}", f"{DATA}/composite", "@{a.b[0]}"]),
    st.sampled_from(["GET", "POST", "2026-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00"]),
)
NAMES = """
    records attributes type id ids fields allOrNone compositeRequest method url referenceId body
    Template__c Priority__c LockedUntil__c RequestHash__c VersionData LockVersion__c
"""
keys = st.sampled_from(NAMES.split())
bodies = st.recursive(
    leaves,
    lambda parts: st.one_of(
        st.lists(parts, max_size=3),
        st.dictionaries(keys, parts, max_size=5),
        st.fixed_dictionaries({"records": st.lists(parts, min_size=1, max_size=2)}),
        st.fixed_dictionaries({"attributes": st.just({"type": DOCUMENT}), "Template__c": parts}),
        st.fixed_dictionaries({"compositeRequest": st.lists(parts, min_size=1, max_size=2)}),
        st.fixed_dictionaries(
            {"method": parts, "url": parts, "referenceId": st.just("a"), "body": parts}
        ),
    ),
    max_leaves=12,
)
paths = st.sampled_from(
    [
        ("composite",),
        ("composite", "sobjects"),
        ("composite", "sobjects", DOCUMENT),
        ("composite", "sobjects", DOCUMENT, "RequestHash__c"),
        ("sobjects", DOCUMENT),
        ("sobjects", "ContentVersion"),
        ("sobjects", DOCUMENT, "RequestHash__c", "x"),
        ("query",),
    ]
)


def answer(server: Server, call: Call) -> Answer:
    try:
        return server.dispatch(call)
    except ApiError as error:
        return Answer(error.status, error.body())


@given(paths, st.sampled_from(["GET", "POST", "PATCH", "DELETE"]), bodies)
@example(("sobjects", DOCUMENT), "POST", {"LockedUntil__c": "0001-01-01T00:00:00+14:00"})
@example(("composite", "sobjects", DOCUMENT), "POST", {"ids": None, "fields": 5})
@example(
    ("composite",),
    "POST",
    {"compositeRequest": [{"method": "GET", "url": "http://[", "referenceId": "a"}]},
)
def test_any_body_is_answered(path: tuple[str, ...], method: str, body: object) -> None:
    async def ask() -> Answer:
        return answer(Server(), Call(method, "59.0", path, INTEGRATION, {}, body))

    assert asyncio.run(ask()).status in (200, 201, 204, 400, 404, 405)
