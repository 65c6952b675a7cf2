"""Why a connection can't be used, in words that say what to do instead."""

from __future__ import annotations

from holdfast.domain.errors import BadArguments


def not_in_transaction(how: str) -> BadArguments:
    return BadArguments(
        "the connection is in autocommit, without an open transaction: what it does is committed at"
        f" once, whatever happens afterwards; {how}, or leave out `connection`"
    )


def in_transaction(where: str) -> BadArguments:
    return BadArguments(
        f"the connection is already in {where}, so the end of this block could not commit; open the"
        " block outside of it"
    )


def sees_one_moment(isolation: str, how: str) -> BadArguments:
    return BadArguments(
        f"the connection's transactions are {isolation.upper()}, and the block could not end"
        f" the job once its lease is renewed; {how}, and lock the rows that the block depends on"
    )


def ended_inside() -> BadArguments:
    return BadArguments(
        "a COMMIT or ROLLBACK inside the block ended its transaction: what was committed stays, and"
        " the rest is no longer atomic with it; leave the commit to the block, and use savepoints"
        " to undo part of the work"
    )
