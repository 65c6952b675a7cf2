"""RabbitMQ as a trigger, under this system's names: `BPC_QUEUE_ENABLED` and its companions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from holdfast import ConfigurationError
from holdfast.messengers import RabbitMQ
from holdfast_systems.environment import is_set, messengers_with

ENABLED: Final = "BPC_QUEUE_ENABLED"
URL: Final = "BPC_QUEUE_URL"
REQUIRED: Final = "BPC_HEALTH_REQUIRE_QUEUE"
DEFAULTS: Final = {
    "BPC_QUEUE_EXCHANGE": "bpc",
    "BPC_QUEUE_ROUTING_KEY": "jobs.trigger",
    "BPC_QUEUE_NAME": "bpc.jobs",
}
LOCAL_URL: Final = "amqp://guest:guest@localhost/"


def queue_from(environment: Mapping[str, str]) -> dict[str, Any]:
    """Read the settings of the queue. A variable that can't take effect is refused."""
    is_required = is_set(environment, REQUIRED)
    if not is_set(environment, ENABLED):
        _refuse_without_queue(environment)
        return {}
    exchange, routing_key, queue = (
        environment.get(variable) or default for variable, default in DEFAULTS.items()
    )
    url = environment.get(URL) or LOCAL_URL
    try:
        messenger = RabbitMQ(url, exchange=exchange, routing_key=routing_key, queue=queue)
    except ConfigurationError as error:
        raise ConfigurationError(f"{URL}: {error}") from None
    settings: dict[str, Any] = {"messengers": messengers_with(environment, messenger)}
    if environment.get(REQUIRED):  # otherwise, the engine's own variable counts
        settings["messengers_required"] = is_required
    return settings


def queue_trouble(log: Path) -> str | None:
    """Why the process with this log can't reach the queue, if it can't."""
    reason = None
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        if '"messenger_lost"' in line:
            reason = str(json.loads(line).get("message", "")).partition(";")[0]
        elif '"messenger_restored"' in line:
            reason = None
    return reason


def _refuse_without_queue(environment: Mapping[str, str]) -> None:
    given = [name for name in (URL, *DEFAULTS) if environment.get(name)]
    if is_set(environment, REQUIRED):
        given.append(REQUIRED)
    if given:
        raise ConfigurationError(
            f"{given[0]} is set, but has no effect without the queue: set {ENABLED}=true, or"
            " remove it"
        )
