"""The child process that renders. It is started by its path and imports nothing of ours.

Its arguments are its memory and time limits, and folders with fonts besides Typst's own. A request
is the path of a template and its data as JSON. An answer is one letter (P for a PDF, E for an
error, G for missing glyphs) and the content. Each part is preceded by its length in four bytes.
"""

from __future__ import annotations

import re
import resource
import signal
import struct
import sys
from pathlib import Path
from typing import BinaryIO, Final, Literal

import typst

LENGTH = struct.Struct(">I")
# Typst silently prints a box for a character that no font has. Only for an archival PDF, which
# can't contain such boxes, does it report them.
ARCHIVAL: Final = "a-3b"
MISSING_GLYPH = "could not be displayed"
MISSING_TEXT = re.compile(r'the text `"((?:(?!the text `").)*?)"` ' + MISSING_GLYPH)


def main() -> None:
    memory_bytes_max, seconds_max = int(sys.argv[1]), float(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes_max, memory_bytes_max))
    fonts = typst.Fonts(include_system_fonts=False, font_paths=sys.argv[3:])
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
        pdf = _pdf(path, data, fonts, "1.7")
    except typst.TypstError as error:
        return b"E", " ".join(error.message.split()).encode()
    try:
        _pdf(path, data, fonts, ARCHIVAL)
    except typst.TypstError as error:
        # The other rules for archives don't matter here.
        if MISSING_GLYPH in error.diagnostic:
            missing = dict.fromkeys(MISSING_TEXT.findall(error.diagnostic))
            return b"G", " ".join(missing).encode()
    return b"P", pdf


def _pdf(path: Path, data: bytes, fonts: typst.Fonts, kind: Literal["1.7", "a-3b"]) -> bytes:
    return typst.compile(
        path,
        root=path.parent,
        font_paths=fonts,
        sys_inputs={"data": data.decode()},
        pdf_standards=[kind],
    )


def _read(source: BinaryIO) -> bytes | None:
    length = source.read(LENGTH.size)
    if len(length) < LENGTH.size:
        return None
    return source.read(LENGTH.unpack(length)[0])


if __name__ == "__main__":
    main()
