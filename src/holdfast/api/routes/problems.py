"""/v1/problems: what the problem codes mean."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from holdfast.api.answers import answer
from holdfast.api.callers import Router
from holdfast.api.examples import EXAMPLES
from holdfast.api.openapi import PUBLIC, describes
from holdfast.api.problems import KINDS, Problem
from holdfast.api.service import Service


class ProblemKind(msgspec.Struct, frozen=True):
    """A kind of problem. Its code and status never change."""

    code: str
    status: int
    title: str


class ProblemKinds(msgspec.Struct, frozen=True):
    """All kinds of problems, by status."""

    problems: list[ProblemKind]


EXAMPLES[ProblemKind] = {"code": "job-not-found", "status": 404, "title": "Job not found"}
EXAMPLES[ProblemKinds] = {"problems": [EXAMPLES[ProblemKind]]}


def routes(service: Service) -> Router:
    router = Router(prefix="/v1/problems", tags=["Problems"])

    @router.get("", **describes(PUBLIC, {200: ProblemKinds}))
    async def list_problems() -> Response:
        """List all kinds of problems."""
        return answer(ProblemKinds([ProblemKind(code, *kind) for code, kind in KINDS.items()]))

    @router.get("/{code}", **describes(PUBLIC, {200: ProblemKind}, ["not-found"]))
    async def get_problem(code: str) -> Response:
        """Explain a kind of problem. The `type` of every problem is the path of this route."""
        if code not in KINDS:
            raise Problem("not-found", f"unknown problem code {code!r}")
        return answer(ProblemKind(code, *KINDS[code]))

    return router
