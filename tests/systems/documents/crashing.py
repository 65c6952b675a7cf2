"""The documents system, except that its process dies after the first upload of a document."""

from __future__ import annotations

import os
import signal
from typing import Any

from holdfast import Context
from holdfast_systems.documents import system
from holdfast_systems.documents.generate import generate


async def generate_document(
    ctx: Context, template: str, data: dict[str, Any], request_hash: str = ""
) -> dict[str, str]:
    made = await generate(ctx, template, data, request_hash)
    if ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return made


system.generate_document = generate_document
hf = system.Documents().hf
