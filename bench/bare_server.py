"""The least that a FastAPI application has to do to answer like `POST /v1/jobs`: read the JSON, and
answer with the JSON of a job. It records nothing.

    python -m bench.bare_server FD

It runs on the same server, event loop and parser as `holdfast serve`, with the same options.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any
from uuid import UUID

import msgspec
import uvicorn
import uvloop
from fastapi import FastAPI

from holdfast.domain.job import NewJob
from holdfast.runtime.seam import Seam

api = FastAPI()
JOB = NewJob(id=UUID(int=1), name="nothing", arguments=b'{"sent_at":0.0,"padding":""}')
ANSWER: dict[str, Any] = msgspec.to_builtins(JOB.enqueued(JOB.id, Seam().now()))


@api.post("/v1/jobs", status_code=201)
async def enqueue(job: dict[str, Any]) -> dict[str, Any]:
    return ANSWER


def main() -> None:
    config = uvicorn.Config(
        api,
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
    )
    listening = socket.socket(fileno=int(sys.argv[1]))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(uvicorn.Server(config).serve([listening]))


if __name__ == "__main__":
    main()
