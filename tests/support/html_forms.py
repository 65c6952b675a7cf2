"""What a browser would send for the forms of a page that nobody fills in."""

from __future__ import annotations

from html.parser import HTMLParser


def fields_of(page: str) -> dict[str, str]:
    """The fields of all forms on a page that are sent, without those of buttons."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    return reader.fields


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}
        self._select: str | None = None
        self._textarea: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        name, value = found.get("name"), found.get("value") or ""
        if tag == "input" and name and not self._is_unchecked(found):
            self.fields[name] = value
        elif tag == "select":
            self._select = name
        elif tag == "option" and self._select:
            if "selected" in found or self._select not in self.fields:
                self.fields[self._select] = value
        elif tag == "textarea" and name:
            self._textarea = name
            self.fields[name] = ""

    @staticmethod
    def _is_unchecked(found: dict[str, str | None]) -> bool:
        return found.get("type") in ("checkbox", "radio") and "checked" not in found

    def handle_endtag(self, tag: str) -> None:
        if tag == "select":
            self._select = None
        elif tag == "textarea" and self._textarea is not None:
            # A browser drops the first line feed, and sends the others as two characters.
            text = self.fields[self._textarea].removeprefix("\n")
            self.fields[self._textarea] = text.replace("\n", "\r\n")
            self._textarea = None

    def handle_data(self, data: str) -> None:
        if self._textarea is not None:
            self.fields[self._textarea] += data
