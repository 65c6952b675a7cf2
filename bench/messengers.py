"""How soon an idle worker starts a job when only a messenger tells it of the job."""

from __future__ import annotations

from bench.cases import Measuring, latency
from bench.driver import Subject
from bench.services import rabbitmq


def pick_up(measuring: Measuring, subject: Subject) -> None:
    with rabbitmq() as url:
        latency(measuring, subject, "pick-up by RabbitMQ", wakeups=url)
