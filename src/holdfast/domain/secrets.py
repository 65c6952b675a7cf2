"""Mask the passwords, tokens and keys in a text before it is shown.

Errors quote what strangers send, so every pattern here runs in linear time: none backtracks.
"""

from __future__ import annotations

import re
from typing import Final

HIDDEN: Final = "***"

# The password extends to the last @ of its word: with an unescaped @ or / it is no URL, but still a
# password. So is one after a user name with an @, / or #. Without a host, it is a file.
_USERINFO: Final = re.compile(r"(://(?:[^\s:/][^\s:]*+)?):(\S*)")
_NAMED: Final = re.compile(
    r"""
    (password | passwd | pwd | secret | token | api[_-]?key | accesskey | accesssignature | sig)
    ( = | ["']\s*+:\s*+ )
    (?: \\*+'(?:[^'\\]|\\.)*+(?:'|\\?\Z)
      | \\*+"(?:[^"\\]|\\.)*+(?:"|\\?\Z)
      # A word of libpq, where a backslash escapes a space (a repr doubles it). In a URL, the next
      # name ends it.
      | (?:\\++.?|[^\s&\\]|&(?![\w.]+=))*+
    )
    """,
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_HEADER: Final = re.compile(
    r"""(authorization["']?\s*+[:=]\s*+["']?)(?:(?:bearer|basic)\s++)?[^\s"',]++""", re.IGNORECASE
)
_API_KEY: Final = re.compile(r"(hfk_[a-z2-7]{12}_)[a-z2-7]++", re.IGNORECASE)

_PORT_AND_PATH: Final = re.compile(r"\d*(?:/.*)?", re.DOTALL)
_OPTION: Final = re.compile(r"[\w.]+=")


def masked(text: str, chars_max: int | None = None) -> str:
    """Hide the secrets in the first `chars_max` characters, even one that is cut off there."""
    shown = text[:chars_max]
    is_cut = len(shown) < len(text)
    if "://" in shown:
        shown = _USERINFO.sub(
            lambda match: _without_password(match, is_cut and match.end() == len(match.string)),
            shown,
        )
    if "=" in shown or ":" in shown:
        shown = _NAMED.sub(rf"\1\2{HIDDEN}", shown)
        shown = _HEADER.sub(rf"\1{HIDDEN}", shown)
    if "hfk_" in shown:
        shown = _API_KEY.sub(rf"\1{HIDDEN}", shown)
    return shown


def _without_password(match: re.Match[str], is_cut: bool) -> str:
    before, rest = match.groups()
    if is_cut:
        return f"{before}:{HIDDEN}"
    _, at, host = rest.rpartition("@")
    return f"{before}:{HIDDEN}@{host}" if at else match[0]


def shown_url(url: str) -> str:
    """The URL (or libpq's `key=value` words) without its password."""
    before, separator, rest = url.partition("://") if "://" in url else ("", "", url)
    user, colon, after = rest.partition(":")
    if colon and not rest.startswith("/"):
        after = _from_host(after)
    return _NAMED.sub(rf"\1\2{HIDDEN}", before + separator + user + colon + after)


def _from_host(text: str) -> str:
    """Mask the password at the beginning, unless it is a port."""
    place, mark, query = text.partition("?")
    if "@" in place:
        return f"{HIDDEN}@{place.rpartition('@')[2]}{mark}{query}"
    # A ? that no option follows is part of a password.
    _, at, host = text.rpartition("@")
    if not at or (_PORT_AND_PATH.fullmatch(place) and _OPTION.match(query)):
        return text
    return f"{HIDDEN}@{host}"
