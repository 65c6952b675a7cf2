"""The local Salesforce, checked with simple-salesforce, a third-party client."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest
import requests
from simple_salesforce.api import Salesforce
from simple_salesforce.exceptions import (
    SalesforceAuthenticationFailed,
    SalesforceError,
    SalesforceExpiredSession,
    SalesforceGeneralError,
    SalesforceMalformedRequest,
    SalesforceRefusedRequest,
    SalesforceResourceNotFound,
)

from tests.support.processes import WAIT_SECONDS
from tests.systems.documents.organization import (
    DOCUMENT,
    document,
    log_in,
    records_of,
    session_to,
    switch,
)

pytestmark = pytest.mark.heavy


@pytest.fixture
def session(address: str) -> Iterator[requests.Session]:
    with session_to(address) as made:
        yield made


@pytest.fixture
def salesforce(session: requests.Session) -> Salesforce:
    return log_in(session, "integration")


def codes(error: SalesforceError) -> list[str]:
    content: Any = error.content
    return [each["errorCode"] for each in content]


def test_a_login_by_password_gives_a_session(session: requests.Session) -> None:
    salesforce = Salesforce(
        username="admin@example.com",
        password="admin-secret",
        consumer_key="admin",
        consumer_secret="admin-secret",
        domain="login",
        session=session,
    )

    assert salesforce.sf_instance == "login.salesforce.com"
    assert salesforce.limits()["DailyApiRequests"]["Max"] == 15_000


def test_a_login_with_a_wrong_secret_is_refused(session: requests.Session) -> None:
    with pytest.raises(SalesforceAuthenticationFailed, match="invalid_client"):
        Salesforce(
            consumer_key="admin", consumer_secret="guess", domain="local.my", session=session
        )


def test_a_client_logs_in_again_when_its_session_ended(
    address: str, salesforce: Salesforce
) -> None:
    before = salesforce.session_id
    switch(address, "DELETE", "sessions")

    assert salesforce.query(f"SELECT COUNT() FROM {DOCUMENT}")["done"]
    assert salesforce.session_id != before


def test_a_session_that_nobody_opened_is_refused(session: requests.Session) -> None:
    stranger = Salesforce(session_id="00D!x", instance="local.my.salesforce.com", session=session)

    with pytest.raises(SalesforceExpiredSession) as refused:
        stranger.query(f"SELECT Id FROM {DOCUMENT}")

    assert codes(refused.value) == ["INVALID_SESSION_ID"]


def test_a_record_is_made_read_changed_and_deleted(salesforce: Salesforce) -> None:
    documents = records_of(salesforce)
    made = documents.create({"Template__c": "letter", "Priority__c": 7})
    record = documents.get(made["id"])

    assert made == {"id": record["Id"], "success": True, "errors": []}
    assert record["attributes"]["url"].endswith(f"/sobjects/{DOCUMENT}/{record['Id']}")
    assert (record["Status__c"], record["Priority__c"]) == ("QUEUED", 7.0)
    assert documents.get(record["Id"][:15]) == record

    assert documents.update(record["Id"], {"Status__c": "CANCELED", "LockVersion__c": 1}) == 204
    assert documents.get(record["Id"])["Status__c"] == "CANCELED"
    assert documents.delete(record["Id"]) == 204
    with pytest.raises(SalesforceResourceNotFound, match="ENTITY_IS_DELETED"):
        documents.delete(record["Id"])


def test_an_upsert_makes_a_record_once_and_changes_it_then(salesforce: Salesforce) -> None:
    documents = records_of(salesforce)
    key = f"a/b c+{uuid4()}"
    path = f"RequestHash__c/{quote(key, safe='')}"

    assert documents.upsert(path, {"Template__c": "letter"}) == 201
    assert documents.upsert(path, {"Template__c": "invoice", "LockVersion__c": 1}) == 200
    found = documents.get(path)
    assert (found["RequestHash__c"], found["Template__c"]) == (key, "invoice")


def test_a_query_goes_over_pages(salesforce: Salesforce) -> None:
    batch = str(uuid4())
    for start in range(0, 450, 150):
        records = [
            document(CorrelationId__c=batch, Priority__c=number)
            for number in range(start, start + 150)
        ]
        salesforce.restful("composite/sobjects", method="POST", json={"records": records})
    query = (
        f"SELECT Id, Priority__c FROM {DOCUMENT} WHERE CorrelationId__c = '{batch}' "
        "ORDER BY Priority__c DESC"
    )
    pages = {"Sforce-Query-Options": "batchSize=200"}

    first = salesforce.query(query, headers=pages)
    found = salesforce.query_all(query, headers=pages)["records"]

    assert (first["totalSize"], first["done"], len(first["records"])) == (450, False, 200)
    assert [record["Priority__c"] for record in found] == [float(n) for n in range(449, -1, -1)]
    assert len({record["Id"] for record in found}) == 450
    count = f"SELECT COUNT() FROM {DOCUMENT} WHERE CorrelationId__c = '{batch}'"
    assert salesforce.query(count) == {"totalSize": 450, "done": True, "records": []}


def test_a_batch_succeeds_in_part(salesforce: Salesforce) -> None:
    key = str(uuid4())
    records = [
        document(RequestHash__c=key),
        document(RequestHash__c=key),
        document(Status__c="LOST"),
        document(Template__c=None),
        document(OutputFileId__c="x" * 19),
    ]

    results = salesforce.restful(
        "composite/sobjects", method="POST", json={"allOrNone": False, "records": records}
    )

    assert results is not None
    assert [result["success"] for result in results] == [True, False, False, False, False]
    assert [error["statusCode"] for result in results for error in result["errors"]] == [
        "DUPLICATE_VALUE",
        "INVALID_OR_NULL_FOR_RESTRICTED_PICKLIST",
        "REQUIRED_FIELD_MISSING",
        "STRING_TOO_LONG",
    ]
    assert results[0]["id"][:15] in results[1]["errors"][0]["message"]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, "REQUIRED_FIELD_MISSING"),
        ({"Template__c": "letter", "Color__c": "red"}, "INVALID_FIELD"),
        ({"Template__c": "letter", "CreatedDate": "2026-01-01T00:00:00Z"}, "INVALID_FIELD_FOR_"),
        ({"Template__c": "letter", "LockedUntil__c": "soon"}, "JSON_PARSER_ERROR"),
        ({"Template__c": "letter", "Priority__c": "high"}, "JSON_PARSER_ERROR"),
        ({"Template__c": "letter", "Priority__c": 1e9}, "NUMBER_OUTSIDE_VALID_RANGE"),
    ],
)
def test_a_bad_record_is_refused_with_its_code(
    salesforce: Salesforce, fields: dict[str, object], code: str
) -> None:
    with pytest.raises(SalesforceMalformedRequest) as refused:
        records_of(salesforce).create(fields)

    assert codes(refused.value)[0].startswith(code)


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("SELECT Id FORM Lead", "MALFORMED_QUERY"),
        ("SELECT Id FROM Lead", "INVALID_TYPE"),
        (f"SELECT Color__c FROM {DOCUMENT}", "INVALID_FIELD"),
        (f"SELECT Id FROM {DOCUMENT} WHERE Data__c = 'x'", "INVALID_FIELD"),
        (f"SELECT Id FROM {DOCUMENT} WHERE LockedUntil__c < 'now'", "INVALID_FIELD"),
        (f"SELECT Id FROM {DOCUMENT} WHERE LockedUntil__c < NOW()", "MALFORMED_QUERY"),
        (f"SELECT Id FROM {DOCUMENT} WHERE Id = 'x'", "INVALID_QUERY_FILTER_OPERATOR"),
        (f"SELECT Id FROM {DOCUMENT} OFFSET 2001", "NUMBER_OUTSIDE_VALID_RANGE"),
    ],
)
def test_a_bad_query_is_refused_with_its_code(
    salesforce: Salesforce, query: str, code: str
) -> None:
    with pytest.raises(SalesforceMalformedRequest) as refused:
        salesforce.query(query)

    assert codes(refused.value) == [code]


def test_what_is_not_there_is_not_found(salesforce: Salesforce) -> None:
    for record_id in ("a00Hf0999999999", "nonsense", "RequestHash__c/nobody", "Name/x"):
        with pytest.raises(SalesforceResourceNotFound) as refused:
            records_of(salesforce).get(record_id)
        assert codes(refused.value) == ["NOT_FOUND"]


def test_a_file_comes_back_as_it_went_and_its_hash_is_unique(salesforce: Salesforce) -> None:
    content = bytes(range(256)) * 40
    fields = {
        "Title": "A file",
        "PathOnClient": "file.pdf",
        "VersionData": base64.b64encode(content).decode(),
        "RequestHash__c": str(uuid4()),
    }

    made = records_of(salesforce, "ContentVersion").create(fields)
    version = records_of(salesforce, "ContentVersion").get(made["id"])
    answer = salesforce._call_salesforce("GET", f"https://local{version['VersionData']}")

    assert made["id"].startswith("068")
    assert version["ContentDocumentId"].startswith("069")
    assert (version["ContentSize"], version["FileType"]) == (len(content), "PDF")
    assert answer.content == content
    with pytest.raises(SalesforceMalformedRequest) as refused:
        records_of(salesforce, "ContentVersion").create(fields)
    assert codes(refused.value) == ["DUPLICATE_VALUE"]


def test_an_object_describes_itself(salesforce: Salesforce) -> None:
    described = records_of(salesforce).describe()
    fields = {field["name"]: field for field in described["fields"]}

    assert described["keyPrefix"] == "a00"
    assert fields["RequestHash__c"]["externalId"]
    assert fields["RequestHash__c"]["unique"]
    assert [choice["value"] for choice in fields["Status__c"]["picklistValues"]] == [
        "QUEUED",
        "PROCESSING",
        "SUCCEEDED",
        "FAILED",
        "CANCELED",
    ]
    objects = salesforce.describe()
    assert objects is not None
    assert [each["name"] for each in objects["sobjects"]] == [DOCUMENT, "ContentVersion"]


def test_the_usage_is_told_and_limited(address: str, salesforce: Salesforce) -> None:
    switch(address, "PUT", "usage", {"used": 18, "limit": 20})
    try:
        salesforce.limits()
        assert salesforce.api_usage["api-usage"] == (19, 20)
        salesforce.limits()
        with pytest.raises(SalesforceRefusedRequest) as refused:
            salesforce.limits()
        assert codes(refused.value) == ["REQUEST_LIMIT_EXCEEDED"]
    finally:
        switch(address, "PUT", "usage", {"used": 0})


def test_what_is_no_text_is_refused(address: str) -> None:
    for method, path in (("POST", "services/oauth2/token"), ("PUT", "_local/usage")):
        answer = requests.request(method, f"{address}/{path}", data=b"\xff", timeout=WAIT_SECONDS)
        assert answer.status_code == 400


@pytest.mark.parametrize("seconds", [10**12, -(10**12), 10**30, 10**300])
def test_records_never_age_past_what_a_time_can_be(
    address: str, salesforce: Salesforce, seconds: int
) -> None:
    created = records_of(salesforce).create({"Template__c": "invoice"})
    before = records_of(salesforce).get(created["id"])
    url = f"{address}/_local/records/age"
    answer = requests.post(url, json=seconds, timeout=WAIT_SECONDS)
    assert (answer.status_code, answer.json()) == (400, {"detail": "no time is this far away"})
    assert records_of(salesforce).get(created["id"]) == before


def test_a_fault_lasts_as_long_as_it_was_told(address: str, salesforce: Salesforce) -> None:
    switch(address, "POST", "faults", {"times": 2, "path": "query"})

    for _ in range(2):
        with pytest.raises(SalesforceGeneralError, match="SERVER_UNAVAILABLE"):
            salesforce.query(f"SELECT COUNT() FROM {DOCUMENT}")
    assert salesforce.query(f"SELECT COUNT() FROM {DOCUMENT}")["done"]
