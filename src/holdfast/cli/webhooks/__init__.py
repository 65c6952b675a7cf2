"""`holdfast webhooks`: subscriptions, events, sagas, dead letters and replays."""
