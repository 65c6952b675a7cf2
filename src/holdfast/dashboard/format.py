"""How values are shown: pure functions, used as filters of templates."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from markupsafe import Markup, escape

# Controls, and what changes the direction or the look of the text around it.
_UNSHOWN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86400
_TONES: Final = {
    "queued": "wait",
    "running": "busy",
    "succeeded": "good",
    "failed": "bad",
    "dead": "bad",
    "canceled": "muted",
}
_TIME: Final = re.compile(r"[0-9]{4}(?:-[0-9]{2}){2}T[0-9]{2}(?::[0-9]{2}){2}\.[0-9]{3}Z")
# What the command line advises at the end of a sentence, where pages have a link or a button.
_COMMAND: Final = re.compile(r"(?:; (?:to [a-z ]+|resume it with))?: holdfast [^;]*$")
# A command within the advice of a finding, up to the next part of the sentence.
_ADVISED: Final = re.compile(r"(`[^`]+`|holdfast (?:'[^']*'|[^;'])+)")
CAPPED: Final = "+"


def plain(text: object) -> str:
    """Show control characters, and those that change the direction of text, as escapes."""
    return _UNSHOWN.sub(lambda found: found[0].encode("unicode_escape").decode(), str(text))


def number(value: float | None, *, is_capped: bool = False) -> str:
    """1,234; with `is_capped`, 10,000+; a dash if it is unknown."""
    if value is None:
        return "\N{EN DASH}"
    digits = f"{value:,.0f}" if value == int(value) or abs(value) >= 100 else f"{value:,.3g}"
    return digits + CAPPED * is_capped


def duration(seconds: float | None) -> str:
    """A length of time with two units at most: 340 ms, 4.2 s, 3 min 20 s, 2 h 5 min, 3 d 4 h."""
    if seconds is None:
        return "\N{EN DASH}"
    sign, seconds = ("-", -seconds) if seconds < 0 else ("", seconds)
    if seconds < 0.9995:
        return f"{sign}{seconds * 1000:.0f} ms" if seconds else "0 s"
    if seconds < 9.95:
        return f"{sign}{seconds:.1f} s"
    whole = round(seconds)
    for size, unit, part_size, part in (
        (_DAY, "d", _HOUR, "h"),
        (_HOUR, "h", _MINUTE, "min"),
        (_MINUTE, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // part_size
            return f"{sign}{whole // size} {unit}" + (f" {rest} {part}" if rest else "")
    return f"{sign}{whole} s"


def iso(time: datetime) -> str:
    """The exact time, in UTC, for machines."""
    return time.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def utc(time: datetime) -> str:
    """The time to the second, in UTC, for people whose browser runs no scripts."""
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def exact(time: datetime) -> str:
    """The time to the millisecond, in UTC, for people."""
    at = time.astimezone(UTC)
    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03d} UTC"


def tone(state: object) -> str:
    return _TONES.get(str(state), "muted")


def size(count: int) -> str:
    """Bytes, for people."""
    amount = float(count)
    for unit in ("B", "kB", "MB"):
        if amount < 1000:
            return f"{amount:.3g} {unit}" if unit != "B" else f"{count} B"
        amount /= 1000
    return f"{amount:.3g} GB"


def pretty(value: object) -> str:
    """Indented JSON. Numbers stay byte for byte, if the value is the text of a JSON value."""
    data = value if isinstance(value, bytes | str) else msgspec.json.encode(value)
    formatted = msgspec.json.format(data, indent=2)
    return plain(formatted.decode() if isinstance(formatted, bytes) else formatted)


def sentence(text: str) -> str:
    """The text of an error as a sentence of its own."""
    end = "" if text.endswith((".", "!", "?", ":")) else "."
    return text[:1].upper() + text[1:] + end


def with_times(text: str) -> Markup:
    """The text with its exact times marked up, so that a script shows them in the viewer's zone."""
    return Markup(_TIME.sub(_marked_up, str(escape(plain(text)))))


def with_commands(text: str) -> Markup:
    """The advice of a finding, with its times and its commands marked up."""
    parts = _ADVISED.split(text)
    marked = [
        Markup("<code>{}</code>").format(plain(each).strip("`")) if place % 2 else with_times(each)
        for place, each in enumerate(parts)
    ]
    return Markup().join(marked)


def _marked_up(found: re.Match[str]) -> str:
    try:
        time = datetime.fromisoformat(found[0])
    except ValueError:  # somebody's text may look like a time
        return found[0]
    return f'<time datetime="{iso(time)}" title="{exact(time)}" data-clock>{utc(time)}</time>'


def without_command(text: str) -> str:
    """The sentence without the command that it ends with."""
    return _COMMAND.sub("", text)


FILTERS: Final[Mapping[str, Callable[..., Any]]] = {
    "plain": plain,
    "number": number,
    "duration": duration,
    "iso": iso,
    "utc": utc,
    "exact": exact,
    "tone": tone,
    "size": size,
    "pretty": pretty,
    "sentence": sentence,
    "with_times": with_times,
    "with_commands": with_commands,
    "quoted": shlex.quote,
}
