"""The pages of webhooks in the dashboard, imported only where there is one: workers and
applications need no web framework."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast import Holdfast, Tables

if TYPE_CHECKING:
    from holdfast.dashboard.systems import SystemPages
    from holdfast.webhooks.service import Webhooks


def add_pages(hf: Holdfast, webhooks: Webhooks, tables: Tables) -> None:
    def sagas(_service: object) -> SystemPages:
        from holdfast.webhooks.pages import WebhookPages

        return WebhookPages(webhooks, tables)

    def subscriptions(_service: object) -> SystemPages:
        from holdfast.webhooks.subscription_pages import SubscriptionPages

        return SubscriptionPages(tables)

    def dead_letters(_service: object) -> SystemPages:
        from holdfast.webhooks.letter_pages import LetterPages

        return LetterPages(tables)

    for make in (sagas, subscriptions, dead_letters):
        hf.add_pages(make)
