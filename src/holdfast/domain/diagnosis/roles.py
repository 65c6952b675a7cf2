"""Does each database role still have exactly the privileges that were decided?"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.domain.diagnosis.findings import Check, Finding, fine, warning
from holdfast.domain.diagnosis.words import counted
from holdfast.domain.roles import RoleDifference


def judge_roles(differences: Sequence[RoleDifference]) -> Finding:
    if not differences:
        return fine(Check.ROLES, "the roles match the decisions")
    first, more = differences[0], len(differences) - 1
    others = f", and {counted(more, 'other difference')}" if more else ""
    return warning(
        Check.ROLES,
        f"the roles differ from the decisions: {first.text}{others}",
        advice="list the differences with `holdfast roles check`; fix them with the administrator"
        " login",
        command="holdfast roles install --app MODULE:NAME",
        differences=[each.text for each in differences],
    )
