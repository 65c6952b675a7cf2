"""Messages between a worker and its child processes, as frames on a socket."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from holdfast.domain.errors import PayloadTooLarge
from holdfast.domain.job import Claimed, Lease
from holdfast.domain.limits import CHILD_MESSAGE_BYTES_MAX
from holdfast.domain.outcomes import Failed, HandedBack, Outcome, Released, Snoozed, Succeeded
from holdfast.observability.logs import Format
from holdfast.worker.processes.origin import Origin
from holdfast.worker.run import Stop

_LENGTH_BYTES: Final = 4


class AppBoot(msgspec.Struct):
    """The app whose handlers a child runs, and its database."""

    origin: Origin
    url: str
    middleware: list[str]
    log_errors: bool


class Boot(msgspec.Struct, tag=True, kw_only=True):
    """The first message to a child: what it needs to resemble its parent. A child without an app
    runs functions; it gets no URL, which may contain a password."""

    app: AppBoot | None
    path: list[str]
    log_format: Format | None
    log_level: int


class Perform(msgspec.Struct, tag=True):
    """The arguments of a job that is `encrypted` in the database are in plaintext here."""

    job: Claimed
    memory_bytes_max: int | None
    encrypted: bool = False


class Call(msgspec.Struct, tag=True):
    """A call of a function. Its arguments are a pickle."""

    origin: Origin
    arguments: bytes
    memory_bytes_max: int | None


class StopHandler(msgspec.Struct, tag=True):
    why: Stop


class Recorded(msgspec.Struct, tag=True):
    """The answer to the Progress with this number: whether the job is still leased, or why that is
    unknown."""

    number: int
    leased: bool
    trouble: str | None = None


class Close(msgspec.Struct, tag=True):
    pass


class Ready(msgspec.Struct, tag=True):
    pass


class NotReady(msgspec.Struct, tag=True):
    """`error_text` comes from the user's code: it goes into the job's error, but into no log."""

    reason: str
    error_type: str
    error_text: str


class Progress(msgspec.Struct, tag=True):
    number: int
    lease: Lease
    data: bytes


class Ended(msgspec.Struct, tag=True, kw_only=True):
    """How the handler ended; all are None if its lease is lost."""

    succeeded: Succeeded | None = None
    failed: Failed | None = None
    snoozed: Snoozed | None = None
    released: Released | None = None
    handed_back: HandedBack | None = None
    bytes_used: int = 0
    traceback: str | None = None

    @classmethod
    def of(cls, outcome: Outcome | None, bytes_used: int, traceback: str | None = None) -> Ended:
        ended = cls(bytes_used=bytes_used, traceback=traceback)
        match outcome:
            case Succeeded():
                ended.succeeded = outcome
            case Failed():
                ended.failed = outcome
            case Snoozed():
                ended.snoozed = outcome
            case Released():
                ended.released = outcome
            case HandedBack():
                ended.handed_back = outcome
        return ended

    @property
    def outcome(self) -> Outcome | None:
        return self.succeeded or self.failed or self.snoozed or self.released or self.handed_back

    @property
    def lacked_memory(self) -> bool:
        return self.failed is not None and self.failed.code == MemoryError.__name__


class Returned(msgspec.Struct, tag=True):
    """What a function returned or raised, as a pickle."""

    pickle: bytes
    raised: bool = False
    lacked_memory: bool = False
    bytes_used: int = 0


Message = (
    Boot | Perform | Call | StopHandler | Recorded | Close
    | Ready | NotReady | Progress | Ended | Returned
)  # fmt: skip

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Message)


class Unreadable(Exception):
    """The other side sent an invalid message, or one that is too large."""


def pack(message: Message) -> bytes:
    data = _ENCODER.encode(message)
    if len(data) > CHILD_MESSAGE_BYTES_MAX:
        raise PayloadTooLarge(
            f"a message of {len(data)} bytes to or from a child process is too large; the limit is"
            f" {CHILD_MESSAGE_BYTES_MAX}"
        )
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data


async def receive(reader: asyncio.StreamReader) -> Message | None:
    """Read one message; None if the other side is gone."""
    try:
        length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big")
        if length > CHILD_MESSAGE_BYTES_MAX:
            raise Unreadable(f"a message of {length} bytes")
        message: Message = _DECODER.decode(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    except msgspec.MsgspecError as error:
        raise Unreadable(str(error)) from error
    return message
