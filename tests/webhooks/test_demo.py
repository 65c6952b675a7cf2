"""The demonstration, on both databases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.webhooks.presets import STANDARD_WEBHOOKS
from holdfast_systems.demos import webhooks
from holdfast_systems.demos.frame import open_stage
from holdfast_systems.demos.receiver import is_genuine
from tests.webhooks.shop import both_stores

pytestmark = pytest.mark.heavy


@both_stores
async def test_the_demonstration_shows_a_retry_a_dead_letter_and_a_requeue(
    store_url: str, tmp_path: Path
) -> None:
    async with open_stage("webhooks", tmp_path / "out", store_url) as stage:
        await webhooks.run(stage)
    assert [step.failures for step in stage.steps] == [[]] * len(stage.steps)
    (made,) = stage.files
    told = json.loads(made.path.read_text(encoding="utf-8"))
    ends = [
        (saga["endpoint"], saga["saga"]["status"], len(saga["attempts"])) for saga in told["sagas"]
    ]
    assert ends == [
        ("recovers", "Delivered", 3),
        ("broken", "DeadLettered", 3),
        ("broken", "Delivered", 1),
    ]
    (letter,) = told["dead_letters"]
    assert json.loads(letter["payload_snapshot"]) == {"order": 1001, "cents": 1990}
    assert "whsec_" not in json.dumps(told)


def test_the_receiver_takes_an_odd_signature_for_a_wrong_one() -> None:
    secret = STANDARD_WEBHOOKS.make_secret()
    for header in ("x-bpc-signature", "webhook-signature"):
        assert not is_genuine(secret, {header: "sha256=\u00e9"}, b"{}")
