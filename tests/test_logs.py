from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
import textwrap
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.observability import logs
from tests.support.processes import PROGRAM_SECONDS_MAX

SECRET = "s3cr3t"


class Collected(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def collected() -> Any:
    handler = Collected()
    logger = logging.getLogger("holdfast")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


def run_script(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "import logging\n" + textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS_MAX,
        check=True,
    )


def test_json_line_has_time_level_event_message_and_fields() -> None:
    ran = run_script(
        """
        from holdfast.observability import logs
        logs.configure("json")
        logs.event(logging.WARNING, "job.failed", "it broke", job_id="j", name="resize",
                   attempt=2, duration_ms=1.5, error_code="TIMEOUT", count=0, tenant=None)
        """
    )
    line = json.loads(ran.stderr)
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "warning",
        "event": "job.failed",
        "message": "it broke",
        "job_id": "j",
        "name": "resize",
        "attempt": 2,
        "duration_ms": 1.5,
        "error_code": "TIMEOUT",
        "count": 0,
    }


def test_fields_outside_the_list_never_reach_a_log(collected: Collected) -> None:
    fields: dict[str, Any] = {"arguments": SECRET, "result": SECRET, "name": "resize"}
    logs.event(logging.INFO, "job.started", **fields)
    (record,) = collected.records
    assert record.getMessage() == "job.started name=resize"


def test_a_disabled_level_makes_no_record(collected: Collected) -> None:
    class Explodes:
        def __str__(self) -> str:
            raise AssertionError("a disabled event must not look at its fields")

    logs.event(logging.DEBUG, "job.started", name=Explodes())  # type: ignore[arg-type]
    assert collected.records == []


def test_using_the_library_configures_no_logging() -> None:
    ran = run_script(
        """
        from holdfast.observability import logs
        logs.event(logging.INFO, "worker.started")
        print(logging.getLogger().handlers, logging.getLogger("holdfast").handlers)
        """
    )
    assert ran.stdout == "[] []\n"
    assert ran.stderr == ""


def test_records_of_other_libraries_go_the_same_way() -> None:
    ran = run_script(
        """
        from holdfast.observability import logs
        logs.configure("json")
        logging.getLogger("other").warning("hello %s\\nagain", "you")
        """
    )
    line = json.loads(ran.stderr)
    assert (line["event"], line["logger"], line["message"]) == ("log", "other", "hello you\nagain")


def test_configuring_twice_logs_once_and_keeps_the_handlers_of_others() -> None:
    ran = run_script(
        """
        from holdfast.observability import logs
        logging.getLogger().addHandler(logging.NullHandler())
        logs.configure("text")
        logs.configure("text")
        logs.event(logging.INFO, "worker.started")
        print(len(logging.getLogger().handlers))
        """
    )
    assert ran.stdout == "2\n"
    assert len(ran.stderr.splitlines()) == 1


def test_auto_is_json_outside_a_terminal() -> None:
    ran = run_script(
        """
        from holdfast.observability import logs
        logs.configure("auto")
        logs.event(logging.INFO, "worker.started")
        """
    )
    assert json.loads(ran.stderr)["event"] == "worker.started"


def format_record(format: str, message: object, error: BaseException | None = None) -> str:
    kinds = {"json": logs._JsonFormatter(), "text": logs._TextFormatter(coloured=False)}
    exc_info = (type(error), error, None) if error else None
    record = logging.LogRecord("x", logging.INFO, "f.py", 1, message, None, exc_info)
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(kinds[format])
    handler.emit(record)
    return stream.getvalue()


@given(text=st.text(), format=st.sampled_from(["json", "text"]))
def test_no_value_can_break_out_of_its_line(text: str, format: str) -> None:
    event = logs.Event("job.failed", text, {"name": text, "error_code": text})
    written = format_record(format, event)
    assert written.endswith("\n")
    assert written[:-1].isprintable()
    written.encode("utf-8")
    if format == "json":
        assert list(json.loads(written))[:4] == ["time", "level", "event", "message"]
    assert str(event).isprintable()


def test_a_traceback_can_not_forge_a_log_line() -> None:
    error = ValueError("bad\n2026-01-01 INFO forged\x1b[2J")
    lines = format_record("text", logs.Event("job.failed", "", {}), error).splitlines()
    assert len(lines) > 2
    assert all(line.startswith("  | ") for line in lines[1:])
    assert len(format_record("json", logs.Event("job.failed", "", {}), error).splitlines()) == 1


def test_lines_for_people_are_short_and_name_the_job() -> None:
    fields = {"job_id": "j", "name": "resize", "queue": "default", "state": "dead", "attempt": 5}
    event = logs.Event(
        "settle", "dead", {**fields, "max_attempts": 5, "fence": 9, "worker_id": "w"}
    )
    assert format_record("text", event).endswith(" settle dead name=resize attempt=5/5 job_id=j\n")


def test_values_messages_and_tracebacks_are_bounded() -> None:
    long = "x" * 1_000_000
    event = logs.Event("job.failed", long, {"name": long})
    assert len(format_record("json", event, ValueError(long))) < 50_000


def test_a_number_that_json_lacks_is_still_a_valid_line() -> None:
    written = format_record("json", logs.Event("e", "", {"duration_ms": float("nan")}))
    assert json.loads(written)["duration_ms"] == "nan"


@pytest.mark.parametrize("format", ["json", "text"])
def test_passwords_are_masked_wherever_they_are_logged(format: str) -> None:
    url = f"postgresql://u:{SECRET}@h/d"
    event = logs.Event("e", f"can't reach {url}", {"database": url})
    assert SECRET not in format_record(format, event, ValueError(f"bad {url}"))
    assert SECRET not in format_record(format, f"dsn host=h password='{SECRET}'")
    assert SECRET not in str(event)
    assert SECRET not in format_record(format, f"can't reach postgresql://u@corp:{SECRET}@h/d")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:s3cr3t@h:5432/d", "postgresql://u:***@h:5432/d"),
        ("postgresql://u:s3/cr@3t@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u:s3?cr3t@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u:a b@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u@corp:s3cr3t@h/d", "postgresql://u@corp:***@h/d"),
        ("postgresql://u:12?s3cr3t@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u:1/2?s3cr3t@h/d", "postgresql://u:***@h/d"),
        ("postgresql:///d?user=u&password=s3cr3t&x=1", "postgresql:///d?user=u&password=***&x=1"),
        ("postgresql://h/d?sslpassword=s3cr3t", "postgresql://h/d?sslpassword=***"),
        ("host=h password='s3 cr3t' user=u", "host=h password=*** user=u"),
        ("postgresql://u@h:5432/d", "postgresql://u@h:5432/d"),
        ("postgresql://h:5432/d?options=a@b", "postgresql://h:5432/d?options=a@b"),
        ("sqlite:///a:b@c.db", "sqlite:///a:b@c.db"),
        ("sqlite:////var/lib/jobs.db", "sqlite:////var/lib/jobs.db"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert logs.shown_url(url) == shown
