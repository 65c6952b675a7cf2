"""What a worker runs: its handlers, and what belongs in and around them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.domain.encrypted_jobs import JobCipher
from holdfast.job_function import Definition
from holdfast.worker.middleware import Around
from holdfast.worker.processes.pool import Children


@dataclass(frozen=True, slots=True)
class Work:
    definitions: Mapping[str, Definition]
    resources: Mapping[str, Any]
    children: Children
    around: Around | None
    cipher: JobCipher
