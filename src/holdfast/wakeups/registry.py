"""Which messenger a URL belongs to: its scheme decides.

Other packages register a messenger with an entry point in the group `holdfast.messengers`. Its name
is the scheme, and it refers to a function with the signature of `MessengerFactory`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from holdfast.domain.errors import ConfigurationError
from holdfast.runtime.plugins import load_plugin
from holdfast.runtime.seam import Seam
from holdfast.wakeups.protocol import Messenger

MessengerFactory = Callable[[str, Seam], Messenger]

ENTRY_POINTS: Final = "holdfast.messengers"
OWN_SCHEMES: Final = ("amqp", "amqps", "servicebus")


def make_messengers(
    given: str | Iterable[str | Messenger], seam: Seam, *, required: bool = False
) -> tuple[Messenger, ...]:
    """Make messengers from their URLs, without connecting. A text has several with spaces between
    them; objects stay as they are."""
    each = given.split() if isinstance(given, str) else given
    made = tuple(_make(one, seam) if isinstance(one, str) else one for one in each)
    if required and not made:
        raise ConfigurationError(
            "messengers_required is set, but there are no messengers: set messengers, or remove it"
        )
    return made


def _make(url: str, seam: Seam) -> Messenger:
    scheme, separator, _ = url.partition("://")
    if not separator:
        raise ConfigurationError("a messenger's URL looks like amqp://user:password@host/")
    return _find(scheme.lower())(url, seam)


def _find(scheme: str) -> MessengerFactory:
    match scheme:
        case "amqp" | "amqps":
            return _make_rabbitmq
        case "servicebus":
            return _make_servicebus
    from importlib.metadata import entry_points  # which our own don't need

    registered = entry_points(group=ENTRY_POINTS)
    if scheme in registered.names:
        factory: MessengerFactory = load_plugin(
            registered[scheme], f"the messenger for {scheme}://"
        )
        return factory
    known = ", ".join(f"{each}://" for each in [*OWN_SCHEMES, *sorted(registered.names)])
    raise ConfigurationError(
        f"there is no messenger for {scheme}://; installed messengers: {known}"
    )


def _make_rabbitmq(url: str, seam: Seam) -> Messenger:
    from holdfast.wakeups.rabbitmq import make_messenger

    return make_messenger(url, seam)


def _make_servicebus(url: str, seam: Seam) -> Messenger:
    from holdfast.wakeups.servicebus.messenger import make_messenger

    return make_messenger(url, seam)
