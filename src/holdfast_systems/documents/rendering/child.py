"""The child process that renders. It is started by its path and imports nothing of ours.

A request is the path of a template and its data as JSON; an answer is one letter (P for a PDF, E
for an error) and the content. Each part has its length before it, in four bytes.
"""

from __future__ import annotations

import resource
import signal
import struct
import sys
from pathlib import Path
from typing import BinaryIO

import typst

LENGTH = struct.Struct(">I")


def main() -> None:
    memory_bytes_max, seconds_max = int(sys.argv[1]), float(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes_max, memory_bytes_max))
    fonts = typst.Fonts(include_system_fonts=False)
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    while (path := _read(requests)) is not None:
        data = _read(requests) or b"{}"
        signal.setitimer(signal.ITIMER_REAL, seconds_max)
        kind, content = _compile(Path(path.decode()), data, fonts)
        signal.setitimer(signal.ITIMER_REAL, 0)
        answers.write(kind + LENGTH.pack(len(content)) + content)
        answers.flush()


def _compile(path: Path, data: bytes, fonts: typst.Fonts) -> tuple[bytes, bytes]:
    try:
        pdf = typst.compile(
            path, root=path.parent, font_paths=fonts, sys_inputs={"data": data.decode()}
        )
    except typst.TypstError as error:
        return b"E", " ".join(error.message.split()).encode()
    return b"P", pdf


def _read(source: BinaryIO) -> bytes | None:
    length = source.read(LENGTH.size)
    if len(length) < LENGTH.size:
        return None
    return source.read(LENGTH.unpack(length)[0])


if __name__ == "__main__":
    main()
