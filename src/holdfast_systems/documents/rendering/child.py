"""The process that renders for the service: questions on stdin, answers on stdout."""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from typing import BinaryIO

import msgspec

from holdfast_systems.documents.rendering import limits
from holdfast_systems.documents.rendering.compile import compile_document
from holdfast_systems.documents.rendering.errors import RenderError, RenderStopped

_LENGTH_BYTES = 4


class Question(msgspec.Struct, frozen=True):
    template: Path
    data: str
    fonts: list[Path]


class Answer(msgspec.Struct, frozen=True):
    """The PDF, or the code and the text of an error."""

    pdf: bytes | None
    code: str = ""
    text: str = ""


def _decode_path(kind: type, value: object) -> object:
    return Path(str(value)) if kind is Path else value


def read_answer(body: bytes) -> Answer:
    return msgspec.msgpack.decode(body, type=Answer)


def _answer(body: bytes) -> Answer:
    question = msgspec.msgpack.decode(body, type=Question, dec_hook=_decode_path)
    try:
        return Answer(compile_document(question.template, question.data, question.fonts))
    except RenderError as error:
        return Answer(None, error.code or "", str(error))
    except MemoryError:
        return Answer(None, RenderStopped.default_code, "it needs too much memory")


def main(questions: BinaryIO, answers: BinaryIO) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (limits.MEMORY_BYTES_MAX, limits.MEMORY_BYTES_MAX))
    while length := questions.read(_LENGTH_BYTES):  # nothing comes when the service has ended
        body = msgspec.msgpack.encode(_answer(questions.read(int.from_bytes(length, "big"))))
        answers.write(len(body).to_bytes(_LENGTH_BYTES, "big") + body)
        answers.flush()


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)
