"""What is kept of an AppServer's answer."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from holdfast_systems.compute.answers import read_answer
from holdfast_systems.compute.contract import ContractBroken, Document
from holdfast_systems.compute.limits import ARTIFACTS_MAX

pytestmark = pytest.mark.heavy

DRAFT = "https://json-schema.org/draft/2020-12/schema"
ANYTHING = Document({"$schema": DRAFT})
SVG = {"kind": "svg", "media_type": "image/svg+xml", "data": "<svg/>"}


def test_an_artifact_that_traveled_in_the_answer_becomes_a_link() -> None:
    answer = read_answer({"results": [{"score": 1.5}], "artifacts": [SVG], "more": 1}, ANYTHING)
    (artifact,) = answer.artifacts
    assert (artifact.kind, artifact.content) == ("svg", b"<svg/>")
    assert artifact.url == f"/jobs/artifact/{artifact.id}"
    assert msgspec.json.decode(answer.outputs_json) == {
        "results": [{"score": 1.5}],
        "artifacts": [{"kind": "svg", "media_type": "image/svg+xml", "url": artifact.url}],
        "more": 1,
    }


def test_an_artifact_elsewhere_keeps_its_address_and_its_end() -> None:
    sent = {
        "kind": "model",
        "media_type": "model/gltf-binary",
        "url": "https://host/house.glb?signature=1",
        "expires_at": "2030-01-02T03:04:05Z",
    }
    (artifact,) = read_answer({"artifacts": [sent]}, ANYTHING).artifacts
    assert (artifact.url, artifact.content) == (sent["url"], None)
    assert artifact.expires_at == datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("outputs", "score"),
    [
        ({"results": [{"score": 81.25}, {"score": 90}]}, Decimal("81.25")),
        ({"results": [{"score": 7}]}, Decimal(7)),
        ({"results": [{"score": True}]}, None),
        ({"results": [{"score": "7"}]}, None),
        ({"results": [{}]}, None),
        ({"results": [7]}, None),
        ({"results": []}, None),
        ({}, None),
    ],
)
def test_the_score_is_that_of_the_first_result(
    outputs: dict[str, Any], score: Decimal | None
) -> None:
    assert read_answer(outputs, ANYTHING).score == score


@pytest.mark.parametrize(
    "outputs",
    [
        [],
        "text",
        {"artifacts": {}},
        {"artifacts": [{"kind": "svg"}]},
        {"artifacts": [SVG | {"kind": ""}]},
        {"artifacts": [SVG | {"media_type": "text/html"}]},
        {"artifacts": [SVG] * (ARTIFACTS_MAX + 1)},
        {"artifacts": [{"kind": "a", "media_type": "b", "url": "javascript:alert(1)"}]},
        {"artifacts": [{"kind": "a", "media_type": "b", "url": "/etc/passwd"}]},
        {"artifacts": [{"kind": "a", "media_type": "b", "url": "http://[::1"}]},
        {"artifacts": [{"kind": "a", "media_type": "b", "url": "https://host/\n<b>"}]},
        {"artifacts": [{"kind": "a", "media_type": "b", "url": "https://host/" + "a" * 2000}]},
        {"artifacts": [SVG | {"expires_at": "2030-01-02T03:04:05"}]},
        {"artifacts": [SVG | {"expires_at": "9999-12-31T23:00:00-12:00"}]},
        {"text": "\0"},
    ],
)
def test_an_answer_that_can_not_be_kept_breaks_the_contract(outputs: Any) -> None:
    with pytest.raises(ContractBroken):
        read_answer(outputs, ANYTHING)


def test_the_answer_is_checked_as_it_came_and_as_it_is_kept() -> None:
    def of_artifact(schema: dict[str, Any]) -> Document:
        items = {"artifacts": {"items": {"properties": schema}}}
        return Document({"$schema": DRAFT, "properties": items})

    for contract in (
        of_artifact({"data": {"maxLength": 3}}),
        of_artifact({"url": {"pattern": "^https:"}}),
    ):
        with pytest.raises(ContractBroken):
            read_answer({"artifacts": [SVG]}, contract)
