"""What an AppServer answered, taken apart: outputs for one table, artifacts for another."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import msgspec
from msgspec import Meta

from holdfast_systems.compute.contract import ContractBroken, Document
from holdfast_systems.compute.hashing import canonical
from holdfast_systems.compute.limits import ARTIFACTS_MAX, KIND_CHARS_MAX, URL_CHARS_MAX

# What may be served to browsers, from the API's own address.
MEDIA_TYPES = ("image/svg+xml", "application/json", "text/plain")


class _Artifact(msgspec.Struct, frozen=True):
    kind: Annotated[str, Meta(min_length=1, max_length=KIND_CHARS_MAX)]
    media_type: str
    data: str | None = None
    url: str | None = None
    expires_at: datetime | None = None


class _Answer(msgspec.Struct, frozen=True):
    """All that this system wants to know of any definition's outputs."""

    results: list[Any] = []
    artifacts: Annotated[list[_Artifact], Meta(max_length=ARTIFACTS_MAX)] = []


@dataclass(frozen=True)
class Artifact:
    id: UUID
    kind: str
    url: str
    media_type: str
    content: bytes | None
    expires_at: datetime | None


@dataclass(frozen=True)
class Answer:
    outputs_json: str
    score: Decimal | None
    artifacts: list[Artifact]


def take_apart(outputs: Any, contract: Document) -> Answer:
    """Check the outputs, and put a link in the place of each artifact that travelled in them."""
    contract.check(outputs)
    try:
        answer = msgspec.convert(outputs, _Answer)
    except msgspec.ValidationError as error:
        raise ContractBroken([str(error)]) from None
    artifacts = [_stored(artifact) for artifact in answer.artifacts]
    stored = dict(outputs)
    if artifacts:
        stored["artifacts"] = [
            {**{key: value for key, value in sent.items() if key != "data"}, "url": made.url}
            for sent, made in zip(outputs["artifacts"], artifacts, strict=True)
        ]
    contract.check(stored)
    return Answer(canonical(stored).decode(), _score(answer.results), artifacts)


def _stored(sent: _Artifact) -> Artifact:
    artifact_id = uuid4()
    if sent.data is not None:
        if sent.media_type not in MEDIA_TYPES:
            raise ContractBroken([f"an artifact must be {', '.join(MEDIA_TYPES)}"])
        url, content = f"/jobs/artifact/{artifact_id}", sent.data.encode()
    else:
        url, content = sent.url or "", None
        _check_url(url)
    if sent.expires_at is not None and sent.expires_at.tzinfo is None:
        raise ContractBroken(["expires_at of an artifact has no time zone"])
    return Artifact(artifact_id, sent.kind, url, sent.media_type, content, sent.expires_at)


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc or len(url) > URL_CHARS_MAX:
        raise ContractBroken(["an artifact needs data, or an http address"])


def _score(results: list[Any]) -> Decimal | None:
    first = results[0] if results else None
    score = first.get("score") if isinstance(first, dict) else None
    is_number = isinstance(score, int | float) and not isinstance(score, bool)
    return Decimal(str(score)) if is_number else None
