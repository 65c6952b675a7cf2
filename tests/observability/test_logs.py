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
from tests.support.patterns import CPU_SECONDS_MAX, cpu_seconds
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
    kinds = {"json": logs._JsonFormatter(), "text": logs._TextFormatter(colored=False)}
    exc_info = (type(error), error, None) if error else None
    record = logging.LogRecord("x", logging.INFO, "f.py", 1, message, None, exc_info)
    record.created = 0.0  # so that two of them can be compared
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


def test_a_tenant_and_a_queue_that_nobody_chose_are_left_out_for_people() -> None:
    event = logs.Event("start", "", {"job_id": "j", "queue": "default", "tenant": "default"})
    assert format_record("text", event).endswith(" start job_id=j\n")
    assert json.loads(format_record("json", event))["tenant"] == "default"


@pytest.mark.parametrize("format", ["json", "text"])
def test_a_traceback_of_another_process_is_shown_like_any_other(format: str) -> None:
    error = ValueError(f"no: password={SECRET}")
    event = logs.Event("settle", "dead", {}, logs.formatted(error))
    assert format_record(format, event) == format_record(
        format, logs.Event("settle", "dead", {}), error
    )
    assert str(event) == "settle dead\nValueError: no: password=***"


def test_12_an_error_that_can_not_be_read_has_a_text_all_the_same() -> None:
    class Hostile(Exception):
        @property
        def __cause__(self) -> BaseException:  # type: ignore[override]
            raise SystemExit

    assert logs.formatted(Hostile()) == "Hostile: can't be read: SystemExit"


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


def test_a_secret_that_is_cut_off_with_its_line_stays_hidden() -> None:
    for chars in range(logs.VALUE_CHARS_MAX):
        url = f"{'x' * chars} postgresql://u:{SECRET * 200}@h/d"
        assert SECRET[:3] not in format_record("text", logs.Event("e", "", {"name": url}))
    words = f"{'x' * (logs.MESSAGE_CHARS_MAX - 20)} password='{SECRET} {SECRET} {SECRET}'"
    assert SECRET[:3] not in format_record("json", words)


@pytest.mark.parametrize("format", ["json", "text"])
def test_12_a_long_line_takes_no_longer_than_its_length(format: str) -> None:
    text = f"can't reach ://{'0123456789abcdef' * 15_000}"
    assert cpu_seconds(lambda: format_record(format, text, ValueError(text))) < CPU_SECONDS_MAX


def test_12_errors_that_were_raised_from_one_another_without_end_are_told() -> None:
    error: BaseException = ValueError("the first")
    for number in range(100_000):
        later = ValueError(f"number {number}")
        later.__cause__ = error
        error = later
    written = format_record("text", "it broke", error)
    assert "ValueError: number 99999" in written
    nested: BaseException = ValueError("inside")
    for _ in range(5_000):
        nested = ExceptionGroup("several", [nested])  # type: ignore[type-var]
    assert "several (1 sub-exception)" in format_record("json", "it broke", nested)


def test_12_a_record_that_can_not_be_written_is_told_without_its_values() -> None:
    ran = run_script(
        f"""
        from holdfast.observability import logs
        logs.configure("json")
        logging.getLogger("other").warning("%d", "{SECRET}")
        logging.getLogger("other").warning("the next")
        """
    )
    first, second = map(json.loads, ran.stderr.splitlines())
    assert first["message"] == "can't write a record of other: TypeError"
    assert second["message"] == "the next"
    assert SECRET not in ran.stderr
