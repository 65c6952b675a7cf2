"""Messages in RabbitMQ: AMQP shows those that are ready, only metrics show unacknowledged ones."""

from __future__ import annotations

import re
import time
import urllib.request
from urllib.parse import urlsplit

TOLD_SECONDS = 0.2  # as often as a queue reports its counts: see bench/services.py


def unfinished(url: str, queue: str) -> int:
    """Count a queue's messages, ready or being handled, as they were a moment ago at most."""
    address = urlsplit(url)
    metrics = f"http://{address.hostname}:{(address.port or 0) + 1}/metrics/detailed"
    time.sleep(TOLD_SECONDS)
    with urllib.request.urlopen(f"{metrics}?family=queue_coarse_metrics") as answer:
        text = answer.read().decode()
    found = re.findall(rf'^\w+_queue_messages\{{[^}}]*queue="{queue}"[^}}]*\}} (\d+)', text, re.M)
    return sum(int(number) for number in found)
