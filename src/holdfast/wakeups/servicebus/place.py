"""Where a queue of Service Bus is, from a connection string or from a messenger's URL."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from holdfast.domain.errors import ConfigurationError

SCHEME: Final = "servicebus"
_WORDS: Final = (
    "endpoint",
    "entitypath",
    "sharedaccesskey",
    "sharedaccesskeyname",
    "sharedaccesssignature",
    "usedevelopmentemulator",
)
_LOOK: Final = (
    "a connection string of Service Bus looks like"
    " Endpoint=sb://namespace.servicebus.windows.net/;SharedAccessKeyName=name;SharedAccessKey=key"
)
_LOOK_OF_URL: Final = (
    "a Service Bus URL looks like servicebus://key-name:key@namespace.servicebus.windows.net/queue;"
    " write special characters of the key as %2F for /, %2B for + and %3D for ="
)


@dataclass(frozen=True)
class Place:
    """A queue, and how to log in to its namespace."""

    connection_string: str = field(repr=False)
    host: str
    queue: str

    @property
    def shown(self) -> str:
        return f"{SCHEME}://{self.host}/{self.queue}"


def place_of(connection_string: str, queue: str | None) -> Place:
    """Check a connection string. No error quotes it: it has a key."""
    words = _words(connection_string)
    try:
        endpoint = urlsplit(words.get("endpoint", ""))
        is_whole = bool(endpoint.hostname) and endpoint.port != 0
    except ValueError:
        is_whole = False
    has_key = bool(words.get("sharedaccesskeyname") and words.get("sharedaccesskey"))
    if not is_whole or has_key == bool(words.get("sharedaccesssignature")):
        raise ConfigurationError(_LOOK)
    named = words.get("entitypath") or queue
    if not named:
        raise ConfigurationError("name the queue of Service Bus: neither queue nor EntityPath does")
    if queue not in (None, named):
        raise ConfigurationError(
            f"the connection string is for the queue {named!r}, not for {queue!r}"
        )
    return Place(connection_string, endpoint.netloc, named)


def place_of_url(split: SplitResult, *, emulator: bool) -> Place:
    try:
        is_whole = bool(split.hostname and split.username and split.password) and split.port != 0
    except ValueError:  # whose text may quote a key with an unescaped slash
        is_whole = False
    queue = unquote(split.path.strip("/"))
    if not is_whole or not queue:
        raise ConfigurationError(_LOOK_OF_URL)
    host = split.netloc.rpartition("@")[2]
    words = {
        "Endpoint": f"sb://{host}",
        "SharedAccessKeyName": unquote(split.username or ""),
        "SharedAccessKey": unquote(split.password or ""),
        **({"UseDevelopmentEmulator": "true"} if emulator else {}),
    }
    return place_of(";".join(f"{name}={value}" for name, value in words.items()), queue)


def _words(connection_string: str) -> dict[str, str]:
    parts = [part.strip() for part in connection_string.split(";") if part.strip()]
    words = {}
    for part in parts:
        name, separator, value = part.partition("=")
        if not separator or name.strip().lower() not in _WORDS:
            raise ConfigurationError(_LOOK)
        words[name.strip().lower()] = value.strip()
    return words
