"""The lines of the log: what became of a job, with the same fields in API, worker and AppServer."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Final

NO_JOB: Final = "-"
_LEVELS: Final = {"failed": logging.ERROR, "refused": logging.WARNING}


@dataclass(frozen=True)
class StatusLines:
    """Logs the states of one job, or of a request that did not become one."""

    logger: logging.Logger
    cid: str
    definition: str
    version: str
    job_id: object = NO_JOB
    attempt: int = 0

    def say(self, status: str, *, event: str | None = None, **more: Any) -> None:
        """Log the status. `error_code` and `error_text` in `more` say why it is this one."""
        fields = {
            "cid": self.cid,
            "job_id": str(self.job_id),
            "status": status,
            "attempt": self.attempt,
            "definition@version": f"{self.definition}@{self.version}",
            **more,
        }
        calm = logging.WARNING if "error_code" in more else logging.INFO
        name = event or status
        self.logger.log(_LEVELS.get(status, calm), name, extra={"event": name, "fields": fields})
