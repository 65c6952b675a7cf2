"""`python -m bench.documents`: how long a caller of POST /documents waits, in the API's process."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.api.server import listen

P95_SECONDS_MAX = 1.0
WARM_UP = 3
LOCAL = ("-m", "holdfast_systems.documents.salesforce.local")
SERVE = ("-m", "holdfast", "serve", "holdfast_systems.documents.app:hf", "--log-level", "error")
LETTER = {
    "sender": {"name": "Harbour & Sons", "address": ["Quay 7", "20457 Hamburg"]},
    "recipient": {"name": "Ada King", "address": ["Road 1", "10115 Berlin"]},
    "date": "16 November 2026",
    "subject": "Your mooring",
    "salutation": "Dear Ada,",
    "paragraphs": ["The ropes have arrived."],
    "closing": "Yours,",
}


@contextmanager
def service() -> Iterator[str]:
    """Serve the documents system on a local Salesforce; yield its address."""
    local = subprocess.Popen([sys.executable, *LOCAL], stdout=subprocess.PIPE)
    assert local.stdout is not None
    with local, listen("127.0.0.1", 0) as listening:
        host = json.loads(local.stdout.readline())["address"].removeprefix("http://")
        url = f"salesforce+http://integration:integration-secret@{host}"
        fd = listening.fileno()
        command = [sys.executable, *SERVE, "--worker", "--fd", str(fd)]
        with subprocess.Popen(command, pass_fds=[fd], env=_environment(url)) as server:
            try:
                yield f"http://127.0.0.1:{listening.getsockname()[1]}"
            finally:
                server.terminate()
                local.terminate()


def _environment(url: str) -> dict[str, str]:
    return {**os.environ, "SALESFORCE_URL": url}


def waits(address: str, requests: int) -> list[float]:
    """The seconds of each request, sorted, after a few that nobody counts."""
    seconds = []
    for number in range(WARM_UP + requests):
        body = json.dumps({"template": "letter", "data": LETTER}).encode()
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(f"{address}/documents", body, headers)
        began = time.perf_counter()
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.read().startswith(b"%PDF")
        if number >= WARM_UP:
            seconds.append(time.perf_counter() - began)
    return sorted(seconds)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--requests", type=int, default=200)
    with service() as address:
        seconds = waits(address, options.parse_args().requests)
    p50, p95 = (seconds[int(len(seconds) * share)] for share in (0.5, 0.95))
    print(f"POST /documents: p50 {p50 * 1000:.0f} ms, p95 {p95 * 1000:.0f} ms")
    sys.exit(p95 >= P95_SECONDS_MAX)


if __name__ == "__main__":
    main()
