"""The routes of webhooks, behind the keys and tenants of the service."""

from __future__ import annotations

from holdfast.api import Router
from holdfast.webhooks.routes import dead_letters, events, replays, sagas, subscriptions
from holdfast.webhooks.service import Webhooks


def routes(webhooks: Webhooks) -> Router:
    router = Router(tags=["Webhooks"])
    for each in (events, subscriptions, sagas, dead_letters, replays):
        each.add_routes(router, webhooks)
    return router
