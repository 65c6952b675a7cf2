"""/v1/samples: what a chart needs, and clear answers to what it can't have."""

from __future__ import annotations

from datetime import timedelta

from holdfast import Holdfast
from holdfast.domain.samples import moment_of
from tests.support.api import served
from tests.support.jobs import claimed


async def test_samples_come_as_one_series_with_its_gaps(hf: Holdfast) -> None:
    await hf.samples.get()  # on SQLite, this creates the table
    at = int((await hf.now()).timestamp() - 300) // 10 * 10
    hf._metrics.throughput.settled("mail", "succeeded", 0.5)
    hf._metrics.throughput.claimed([claimed(queue="mail", waited_seconds=0.5)])
    await hf._sampling.take(at)
    since = moment_of(at)
    query = {
        "queue": "mail",
        "since": since.isoformat(),
        "until": (since + timedelta(seconds=20)).isoformat(),
        "points": "2",
    }
    async with served(hf) as client:
        answer = await client.get("/v1/samples", params=query)
        assert answer.status_code == 200, answer.text
        found = answer.json()
        assert (found["queue"], found["step_seconds"]) == ("mail", 10)
        sampled, gap = found["samples"]
        assert (sampled["succeeded"], sampled["ready"], sampled["covered_seconds"]) == (1, 0, 10)
        assert 0.3 < sampled["wait_p50_seconds"] < sampled["wait_p99_seconds"] < 0.7
        assert (gap["succeeded"], gap["ready"], gap["covered_seconds"]) == (None, None, 0)
        every = (await client.get("/v1/samples")).json()
        assert every["queue"] is None
        assert len(every["samples"]) == 120
        for wrong in ({"points": "0"}, {"points": "1001"}, {"queue": ""}, {"since": "yesterday"}):
            refused = await client.get("/v1/samples", params=wrong)
            assert refused.status_code in (400, 422), (wrong, refused.text)
