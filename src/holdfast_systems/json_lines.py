"""Log to stderr as JSON lines, as the engine's own processes do, for servers without a database."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any, Final

VALUE_CHARS_MAX: Final = 1000


def log_json_lines(level: int = logging.INFO) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonLines())
    logging.basicConfig(level=level, handlers=[handler])


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": getattr(record, "event", "log"),
            "message": record.getMessage()[:VALUE_CHARS_MAX],
            "logger": record.name,
        }
        fields = getattr(record, "fields", {})
        line |= {key: _short(value) for key, value in fields.items()}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        # ASCII only: newlines, control and direction characters are escaped.
        return json.dumps(line)


def _short(value: Any) -> Any:
    return value if isinstance(value, int | float) else str(value)[:VALUE_CHARS_MAX]
