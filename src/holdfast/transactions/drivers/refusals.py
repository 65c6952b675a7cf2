"""Why a connection can't be used, and what to do instead."""

from __future__ import annotations

from holdfast.domain.errors import BadArguments


def not_in_transaction(how: str) -> BadArguments:
    return BadArguments(
        "the connection is in autocommit mode and has no open transaction, so the job would be"
        f" committed at once; {how}, or omit `connection`"
    )


def in_transaction(where: str) -> BadArguments:
    return BadArguments(
        f"the connection is already in {where}, so the end of this block could not commit; open the"
        " block outside it"
    )


def has_snapshot(isolation: str, how: str) -> BadArguments:
    return BadArguments(
        f"the connection's transactions are {isolation.upper()}, where the block can't end the job"
        f" after its lease is renewed; {how}, and lock the rows that the block depends on"
    )


def ended_inside() -> BadArguments:
    return BadArguments(
        "a COMMIT or ROLLBACK inside the block ended its transaction: what was committed stays, and"
        " the rest is not atomic with it; leave the commit to the block, and use savepoints to undo"
        " part of the work"
    )
