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
        f"the connection is in {where} already, so the end of this block could not commit; open the"
        " block outside of it"
    )


def sees_one_moment(isolation: str, how: str) -> BadArguments:
    return BadArguments(
        f"the connection's transactions are {isolation.upper()}: a renewal of the job's lease in"
        f" the block would make its end fail; {how}, and lock the rows that the block depends on"
    )


def ended_inside() -> BadArguments:
    return BadArguments(
        "the block's transaction was ended inside of the block, by a COMMIT or ROLLBACK that is not"
        " the block's own: what was committed stays, and the rest did not happen together with it;"
        " leave the commit to the end of the block, and use savepoints to undo a part"
    )
