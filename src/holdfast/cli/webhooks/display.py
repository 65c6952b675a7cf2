"""Print subscriptions, sagas, attempts and dead letters as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.text import Text

from holdfast.cli.display import WIDE_COLUMNS, Row, console, print_table
from holdfast.domain.times import relative
from holdfast.runtime.seam import Seam
from holdfast.webhooks import Attempt, DeadLetter, Saga, Subscription

STYLES: Final = {
    "Pending": "cyan",
    "InFlight": "blue",
    "Leased": "blue",
    "Delivered": "green",
    "Completed": "green",
    "Failed": "red",
    "DeadLettered": "bold red",
    "Canceled": "yellow",
}


def print_subscriptions(found: Sequence[Subscription]) -> None:
    now = Seam().now()
    rows: list[Row] = [
        {
            "ID": str(each.id),
            "STATE": _state(each),
            "URL": each.url,
            "EVENT TYPES": ", ".join(each.event_types) or "all",
            "PRESET": each.preset,
            "FAILING": "" if each.failing_since is None else relative(each.failing_since, now),
        }
        for each in found
    ]
    hidden = [] if any(each.failing_since for each in found) else ["FAILING"]
    print_table(console(), rows, ("URL", "EVENT TYPES", "PRESET"), hidden)


def _state(subscription: Subscription) -> Text:
    if subscription.disabled_at is None:
        return Text("enabled", "green")
    because = subscription.disabled_because
    return Text(f"disabled ({because})" if because else "disabled", "red")


def print_sagas(found: Sequence[Saga]) -> None:
    out = console()
    now = Seam().now()
    rows: list[Row] = [
        {
            "ID": str(saga.id),
            "STATUS": Text(saga.status, STYLES[saga.status]),
            "ATTEMPTS": str(saga.attempt_count),
            "WHEN": relative(saga.ended_at or saga.next_attempt_at or saga.created_at, now),
            "EVENT": str(saga.event_id),
            "SUBSCRIPTION": str(saga.subscription_id),
        }
        for saga in found
    ]
    hidden = [] if out.width >= WIDE_COLUMNS else ["SUBSCRIPTION"]
    print_table(out, rows, (), hidden)


def print_attempts(found: Sequence[Attempt]) -> None:
    rows: list[Row] = [
        {
            "ATTEMPT": str(each.attempt_no),
            "STATUS": Text(each.status, STYLES[each.status]),
            "ANSWER": "" if each.response_status is None else str(each.response_status),
            "ERROR": each.error_code or "",
            "MS": "" if each.duration_ms is None else str(each.duration_ms),
            "TEXT": each.error_text or (each.response_body or b"").decode("utf-8", "replace"),
        }
        for each in found
    ]
    print_table(console(), rows, ("TEXT",))


def print_letters(found: Sequence[DeadLetter]) -> None:
    now = Seam().now()
    rows: list[Row] = [
        {
            "ID": str(letter.id),
            "ERROR": Text(letter.final_error_code, "red"),
            "FAILED": relative(letter.failed_at, now),
            "EVENT": str(letter.event_id),
        }
        for letter in found
    ]
    print_table(console(), rows, ("ERROR",))
