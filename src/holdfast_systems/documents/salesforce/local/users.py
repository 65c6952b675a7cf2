"""The organization's two users, and the sessions that they opened."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from holdfast_systems.documents.salesforce.local.errors import ApiError
from holdfast_systems.documents.salesforce.local.ids import make_id
from holdfast_systems.documents.salesforce.local.limits import TOKENS_MAX

ORGANISATION_ID = make_id("00D", 1)


@dataclass(frozen=True)
class User:
    """A user, with the connected app that logs in for it."""

    id: str
    username: str
    client_id: str
    client_secret: str = field(repr=False)
    is_integration: bool = False


INTEGRATION = User(
    make_id("005", 1),
    "integration@example.com",
    "integration",
    "integration-secret",
    is_integration=True,
)
ADMIN = User(make_id("005", 2), "admin@example.com", "admin", "admin-secret")
USERS = (INTEGRATION, ADMIN)


class LoginRefused(Exception):
    """A login that failed, in the words of OAuth."""

    def __init__(self, error: str, description: str) -> None:
        super().__init__(description)
        self.error = error
        self.description = description


class Sessions:
    """Access tokens and whose they are; the oldest go when there are too many."""

    def __init__(self) -> None:
        self._users: dict[str, User] = {}

    def log_in(self, grant_type: str, form: dict[str, str]) -> tuple[str, User]:
        user = _user_of(form.get("client_id", ""), form.get("client_secret", ""))
        if grant_type == "password":
            user = _user_by_password(form.get("username", ""), form.get("password", ""))
        elif grant_type != "client_credentials":
            raise LoginRefused("unsupported_grant_type", "grant type not supported")
        while len(self._users) >= TOKENS_MAX:
            del self._users[next(iter(self._users))]
        token = f"{ORGANISATION_ID[:15]}!{secrets.token_urlsafe(60)}"
        self._users[token] = user
        return token, user

    def user_of(self, authorization: str) -> User:
        scheme, _, token = authorization.partition(" ")
        user = self._users.get(token) if scheme.lower() in ("bearer", "oauth") else None
        if user is None:
            message = "Session expired or invalid"
            raise ApiError("INVALID_SESSION_ID", message, status=401)
        return user

    def expire(self) -> None:
        self._users.clear()


def _user_of(client_id: str, client_secret: str) -> User:
    for user in USERS:
        if user.client_id == client_id:
            if secrets.compare_digest(user.client_secret.encode(), client_secret.encode()):
                return user
            raise LoginRefused("invalid_client", "invalid client credentials")
    raise LoginRefused("invalid_client_id", "client identifier invalid")


def _user_by_password(username: str, password: str) -> User:
    """The password is the client's secret, to have only one to know."""
    for user in USERS:
        if user.username == username and secrets.compare_digest(
            user.client_secret.encode(), password.encode()
        ):
            return user
    raise LoginRefused("invalid_grant", "authentication failure")
