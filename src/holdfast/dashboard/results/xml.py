"""XML in indented lines, to look at. Nothing in it is resolved: no entities, no references."""

from __future__ import annotations

from typing import Final
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

_DEPTH_MAX: Final = 200
_INDENT: Final = "  "


class _Unfit(Exception):
    """The document is not for indenting."""


def indented(text: str) -> str:
    """The document with one element per line; unchanged if it isn't well-formed, or declares a
    document type."""
    lines = _Lines()
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.ordered_attributes = True
    parser.StartDoctypeDeclHandler = lines.refuse
    parser.StartElementHandler = lines.start
    parser.EndElementHandler = lines.end
    parser.CharacterDataHandler = lines.characters
    parser.CommentHandler = lines.comment
    parser.ProcessingInstructionHandler = lines.instruction
    parser.XmlDeclHandler = lines.declaration
    try:
        parser.Parse(text.encode("utf-8", "replace"), True)
    except (expat.ExpatError, _Unfit, ValueError):
        return text
    return "\n".join(lines.done)


class _Lines:
    def __init__(self) -> None:
        self.done: list[str] = []
        self._depth = 0
        self._open: str | None = None  # a start tag that may become an empty element
        self._text = ""

    def refuse(self, *_: object) -> None:
        raise _Unfit

    def declaration(self, version: str, _encoding: str | None, _standalone: int) -> None:
        self.done.append(f'<?xml version="{version}"?>')

    def start(self, name: str, attributes: list[str]) -> None:
        self._flush()
        if self._depth >= _DEPTH_MAX:
            raise _Unfit
        pairs = zip(attributes[::2], attributes[1::2], strict=True)
        self._open = f"<{name}{''.join(f' {key}={quoteattr(value)}' for key, value in pairs)}"
        self._depth += 1

    def end(self, name: str) -> None:
        text, opened = self._text.strip(), self._open
        if opened is None:
            self._flush()
        self._depth -= 1
        if opened is None:
            self._line(f"</{name}>")
        else:
            self._line(f"{opened}>{escape(text)}</{name}>" if text else f"{opened}/>")
        self._open, self._text = None, ""

    def characters(self, text: str) -> None:
        self._text += text

    def comment(self, text: str) -> None:
        self._flush()
        self._line(f"<!--{text}-->")

    def instruction(self, target: str, text: str) -> None:
        self._flush()
        self._line(f"<?{target} {text}?>")

    def _flush(self) -> None:
        """Write what was read so far: a start tag that has children, or text between them."""
        if self._open is not None:
            self._depth -= 1
            self._line(f"{self._open}>")
            self._depth += 1
            self._open = None
        if text := self._text.strip():
            self._line(escape(text))
        self._text = ""

    def _line(self, text: str) -> None:
        self.done.append(_INDENT * self._depth + text)
