"""How soon an idle worker starts a job when only a messenger tells it of the job."""

from __future__ import annotations

from bench.cases import Measuring, latency
from bench.driver import Subject
from bench.services import rabbitmq, servicebus


def pick_up(measuring: Measuring, subject: Subject) -> None:
    with rabbitmq() as url:
        latency(measuring, subject, "pick-up by RabbitMQ", wakeups=url)


def pick_up_by_service_bus(measuring: Measuring, subject: Subject) -> None:
    """Over the local broker: on Azure, add the way there and back."""
    with servicebus() as url:
        latency(measuring, subject, "pick-up by Service Bus", wakeups=url)
    with servicebus() as url:
        led = f"{url}&broker_led=true"
        latency(measuring, subject, "pick-up by Service Bus, broker-led", wakeups=led)
