"""Who is logged in: a signed cookie that names a key, and the tokens of forms.

The server stores nothing. The cookie doesn't contain the key, and each request looks the key up
again, so a session ends when its key is revoked, expires or is rotated.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from datetime import datetime
from secrets import token_urlsafe
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holdfast.api.gate import Gate
from holdfast.api.problems import Problem
from holdfast.dashboard.limits import (
    NOTICE_CHARS_MAX,
    NOTICE_SECONDS,
    SESSION_CHARS_MAX,
    SESSION_SECONDS,
)
from holdfast.domain.keys import Key, derived

COOKIE: Final = "__Host-holdfast"
NOTICE_COOKIE: Final = "__Host-holdfast-notice"
TOKEN_FIELD: Final = "csrf"
_NOBODY: Final = "local"  # the session of whoever needs no key


class Session(msgspec.Struct, frozen=True, array_like=True):
    """What the cookie says. `mark` tells two logins with one key apart."""

    key_id: str
    ends_at: int
    mark: str


class Sessions:
    """The gate must have found its secret."""

    def __init__(self, gate: Gate, now: Callable[[], datetime]) -> None:
        self._gate = gate
        self._now = now

    def begin(self, response: Response, key: Key) -> None:
        """Log in: let the response set the cookie."""
        ends_at = int(self._now().timestamp()) + SESSION_SECONDS
        session = Session(key.id, ends_at, token_urlsafe(16))
        text = self._sign("session", msgspec.json.encode(session))
        _set(response, COOKIE, text, SESSION_SECONDS)

    def find(self, request: Request) -> Session | None:
        """The session of the request's cookie; None if it is forged or over."""
        text = request.cookies.get(COOKIE, "")
        data = self._verified("session", text, SESSION_CHARS_MAX)
        if data is None:
            return None
        session = msgspec.json.decode(data, type=Session)
        return session if self._now().timestamp() < session.ends_at else None

    def end(self, response: Response) -> None:
        """Log out: let the response delete the cookie."""
        _set(response, COOKIE, "", 0)

    def token(self, session: Session | None) -> str:
        """The token that each form of this session carries."""
        mark = _NOBODY if session is None else session.mark
        secret = derived(self._gate.secret, "dashboard form")
        return hmac.new(secret, mark.encode(), "sha256").hexdigest()

    def check_token(self, session: Session | None, given: str) -> None:
        wanted = self.token(session)
        if not hmac.compare_digest(wanted.encode(), given.encode()):
            detail = "this form is out of date: go back, reload the page and try again"
            raise Problem("not-allowed", detail)

    def notify(self, response: Response, session: Session | None, notice: str) -> None:
        """Show a notice on the next page."""
        cut = notice if len(notice) <= NOTICE_CHARS_MAX else notice[: NOTICE_CHARS_MAX - 1] + "…"
        text = self._sign(_purpose(session), cut.encode(errors="replace"))
        _set(response, NOTICE_COOKIE, text, NOTICE_SECONDS)

    def notice(self, request: Request, session: Session | None) -> str | None:
        """The notice of the page before. Only we can have written it."""
        text = request.cookies.get(NOTICE_COOKIE, "")
        data = self._verified(_purpose(session), text, 8 * NOTICE_CHARS_MAX)
        return None if data is None else data.decode()

    def forget_notice(self, response: Response) -> None:
        _set(response, NOTICE_COOKIE, "", 0)

    def _sign(self, purpose: str, data: bytes) -> str:
        return f"{_encoded(data)}.{_encoded(self._signature(purpose, data))}"

    def _verified(self, purpose: str, text: str, chars_max: int) -> bytes | None:
        if not text or len(text) > chars_max:
            return None
        given, _, signature = text.partition(".")
        try:
            data, signed = _decoded(given), _decoded(signature)
        except ValueError:
            return None
        is_ours = hmac.compare_digest(signed, self._signature(purpose, data))
        return data if is_ours else None

    def _signature(self, purpose: str, data: bytes) -> bytes:
        secret = derived(self._gate.secret, f"dashboard {purpose}")
        return hmac.digest(secret, data, "sha256")


def _purpose(session: Session | None) -> str:
    return f"notice for {_NOBODY if session is None else session.mark}"


def _set(response: Response, name: str, text: str, seconds: int) -> None:
    response.set_cookie(
        name, text, max_age=seconds, path="/", secure=True, httponly=True, samesite="lax"
    )


def _encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def _decoded(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
