"""Split an AppServer's answer into outputs and artifacts, which have their own tables."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import msgspec
import rfc8785
from msgspec import Meta

from holdfast_systems.compute.contract import ContractBroken, Document, Flaw
from holdfast_systems.compute.limits import ARTIFACTS_MAX, KIND_CHARS_MAX, URL_CHARS_MAX

# What the API can safely serve to browsers.
MEDIA_TYPES = ("image/svg+xml", "application/json", "text/plain")
_NOT_IN_URLS = re.compile(r"[\s\x00-\x1f\x7f]")


class _Artifact(msgspec.Struct, frozen=True):
    kind: Annotated[str, Meta(min_length=1, max_length=KIND_CHARS_MAX)]
    media_type: str
    data: str | None = None
    url: str | None = None
    expires_at: Annotated[datetime, Meta(tz=True)] | None = None


class _Answer(msgspec.Struct, frozen=True):
    """What this system reads from any definition's outputs."""

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


def read_answer(outputs: Any, contract: Document) -> Answer:
    """Check the outputs, and replace the data of each artifact with a link."""
    contract.check(outputs)
    try:
        answer = msgspec.convert(outputs, _Answer)
    except msgspec.ValidationError as error:
        raise ContractBroken(Flaw(str(error))) from None
    artifacts = [_stored(artifact) for artifact in answer.artifacts]
    stored = dict(outputs)
    if artifacts:
        stored["artifacts"] = [
            {**{key: value for key, value in sent.items() if key != "data"}, "url": made.url}
            for sent, made in zip(outputs["artifacts"], artifacts, strict=True)
        ]
    contract.check(stored)
    return Answer(rfc8785.dumps(stored).decode(), _score(answer.results), artifacts)


def _stored(sent: _Artifact) -> Artifact:
    artifact_id = uuid4()
    if sent.data is not None:
        if sent.media_type not in MEDIA_TYPES:
            text = f"the media type of an artifact must be one of {', '.join(MEDIA_TYPES)}"
            raise ContractBroken(Flaw(text))
        url, content = f"/jobs/artifact/{artifact_id}", sent.data.encode()
    else:
        url, content = sent.url or "", None
        if not _is_url(url):
            raise ContractBroken(Flaw("an artifact needs data, or an http or https URL"))
    try:
        expires_at = sent.expires_at and sent.expires_at.astimezone(UTC)
    except OverflowError:
        raise ContractBroken(Flaw("expires_at of an artifact is out of range")) from None
    return Artifact(artifact_id, sent.kind, url, sent.media_type, content, expires_at)


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    is_web = parts.scheme in ("http", "https") and bool(parts.netloc)
    return is_web and len(url) <= URL_CHARS_MAX and not _NOT_IN_URLS.search(url)


def _score(results: list[Any]) -> Decimal | None:
    first = results[0] if results else None
    score = first.get("score") if isinstance(first, dict) else None
    is_number = isinstance(score, int | float) and not isinstance(score, bool)
    return Decimal(str(score)) if is_number else None
