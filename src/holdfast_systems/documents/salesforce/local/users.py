"""The organization's two users and their sessions."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from holdfast_systems.documents.salesforce.local.errors import ApiError
from holdfast_systems.documents.salesforce.local.ids import make_id
from holdfast_systems.documents.salesforce.local.limits import TOKENS_MAX

ORGANIZATION_ID = make_id("00D", 1)


@dataclass(frozen=True)
class User:
    """A user, and the client credentials that log in as that user."""

    id: str
    username: str
    client_id: str
    client_secret: str = field(repr=False)
    is_integration: bool = False


INTEGRATION = User(
    make_id("005", 1), "integration@example.com", "integration", "integration-secret", True
)
ADMIN = User(make_id("005", 2), "admin@example.com", "admin", "admin-secret")
USERS = (INTEGRATION, ADMIN)


class LoginRefused(Exception):
    """A failed login, with OAuth's error code."""

    def __init__(self, error: str, description: str) -> None:
        super().__init__(description)
        self.error = error
        self.description = description


class Sessions:
    """Access tokens and their users; when there are too many, the oldest are dropped."""

    def __init__(self) -> None:
        self._users: dict[str, User] = {}

    def log_in(self, form: dict[str, str]) -> tuple[str, User]:
        user = _user_of(form.get("client_id", ""), form.get("client_secret", ""))
        if form.get("grant_type") == "password":
            user = _user_by_password(form.get("username", ""), form.get("password", ""))
        elif form.get("grant_type") != "client_credentials":
            raise LoginRefused("unsupported_grant_type", "grant type not supported")
        while len(self._users) >= TOKENS_MAX:
            del self._users[next(iter(self._users))]
        token = f"{ORGANIZATION_ID[:15]}!{secrets.token_urlsafe(60)}"
        self._users[token] = user
        return token, user

    def user_of(self, authorization: str) -> User:
        scheme, _, token = authorization.partition(" ")
        user = self._users.get(token) if scheme.lower() in ("bearer", "oauth") else None
        if user is None:
            raise ApiError("INVALID_SESSION_ID", "Session expired or invalid", status=401)
        return user

    def expire(self) -> None:
        self._users.clear()


def _user_of(client_id: str, client_secret: str) -> User:
    for user in USERS:
        if user.client_id == client_id:
            if _is_secret(user, client_secret):
                return user
            raise LoginRefused("invalid_client", "invalid client credentials")
    raise LoginRefused("invalid_client_id", "client identifier invalid")


def _user_by_password(username: str, password: str) -> User:
    """Find a user. The password is the client secret, so that there is only one to know."""
    for user in USERS:
        if user.username == username and _is_secret(user, password):
            return user
    raise LoginRefused("invalid_grant", "authentication failure")


def _is_secret(user: User, given: str) -> bool:
    return secrets.compare_digest(user.client_secret.encode(), given.encode())
