"""Every route of the API against generated requests, good and bad: no server error, and no answer
that the OpenAPI document does not describe."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from typing import Any, Final, cast

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, strategies
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from holdfast import Holdfast, Permanent
from holdfast.domain.keys import SCOPES
from tests.support.api import served

# For each operation, twice: an example is a request, which takes longer than most properties.
EXAMPLES: Final = max(4, int(os.environ.get("HOLDFAST_TEST_EXAMPLES", "0")) // 20)
CHECKS: Final = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
ENDLESS: Final = "text/event-stream"
SOME: Final = {200, 201, 204, 400, 404, 409, 422}  # statuses that a run of any length sees


def make_app(url: str) -> Holdfast:
    hf = Holdfast(url)

    @hf.job(queue="images/small")
    async def resize(image: int, size: float = 0.5, names: list[str] | None = None) -> str:
        """Resize an image."""
        if image == 0:
            raise Permanent("it is empty")
        return f"{image} at {size}"

    @hf.job
    async def anything(value: Any = None) -> Any:
        return value

    return hf


@pytest.mark.hypothesis
@pytest.mark.heavy
async def test_no_request_gets_a_server_error_or_an_undocumented_answer(store_url: str) -> None:
    hf = make_app(store_url)
    known = [str((await hf._functions["resize"].enqueue(image=image)).id) for image in (0, 1)]
    await hf.run_due()
    known.append(str((await hf._functions["anything"].enqueue()).id))
    async with served(hf) as client:
        document = (await client.get("/openapi.json")).json()
        key = await hf.keys.create("tester", scopes=SCOPES, requests_per_second=10_000)
        caller = Client(str(client.base_url), key.key, known)
        await asyncio.to_thread(caller.try_all, document)
    assert caller.seen.keys() >= SOME


class Client:
    """`name` is the parameter in paths that these known IDs are for."""

    def __init__(self, url: str, key: str, known: list[str], name: str = "job_id") -> None:
        self.seen: Counter[int] = Counter()
        self._url = url
        self._headers = {"Authorization": f"Bearer {key}"}
        self._known = known
        self._name = name

    def try_all(self, document: dict[str, Any]) -> None:
        del document["security"]  # every request has the key
        for path in document["paths"].values():
            del path["parameters"]  # headers that every route ignores unless they are good
        for found in schemathesis.openapi.from_dict(document).get_all_operations():
            operation = cast(Any, found).ok()
            described = operation.definition.raw
            if ENDLESS in str(described["responses"]):
                continue  # it is tested on its own
            self._try(operation, GenerationMode.POSITIVE)
            if described.get("parameters") or "requestBody" in described:
                self._try(operation, GenerationMode.NEGATIVE)

    def _try(self, operation: Any, mode: GenerationMode) -> None:
        @hypothesis.settings(
            max_examples=EXAMPLES,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
            deadline=None,
        )
        @hypothesis.given(
            case=operation.as_strategy(mode), known=strategies.sampled_from(self._known)
        )
        def send(case: Any, known: str) -> None:
            if mode is GenerationMode.POSITIVE and self._name in case.path_parameters:
                case.path_parameters[self._name] = known
            for given in (case.body, case.query):
                if isinstance(given, dict) and isinstance(given.get("wait_seconds"), int | float):
                    given["wait_seconds"] = 0
            response = case.call_and_validate(
                base_url=self._url, headers=self._headers, checks=CHECKS
            )
            self.seen[response.status_code] += 1

        try:
            send()
        except hypothesis.errors.Unsatisfiable:
            assert (
                mode is GenerationMode.NEGATIVE
            )  # nothing can be wrong with a route without input
