"""The trigger's variables: what they set, and which are refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import ConfigurationError, Holdfast
from holdfast_systems.passport.queue import queue_from
from tests.support.processes import PROGRAM_SECONDS_MAX

pytestmark = pytest.mark.heavy

NOBODY = "amqp://passport:secret@127.0.0.1:1/"

URL = "amqp://passport:secret@broker.example/bpc"


def test_without_variables_there_is_no_queue() -> None:
    assert queue_from({}) == {}
    assert queue_from({"BPC_QUEUE_ENABLED": "false", "BPC_HEALTH_REQUIRE_QUEUE": "0"}) == {}


def test_the_queue_is_named_as_agreed() -> None:
    settings = queue_from({"BPC_QUEUE_ENABLED": "true"})
    hf = Holdfast("sqlite:///none.db", **settings)
    (status,) = hf.messengers.statuses()
    assert (status.name, status.address) == ("rabbitmq", "amqp://guest:***@localhost/")
    assert not hf.settings.messengers_required


def test_every_variable_takes_effect() -> None:
    environment = {
        "BPC_QUEUE_ENABLED": "TRUE",
        "BPC_QUEUE_URL": URL,
        "BPC_QUEUE_EXCHANGE": "other",
        "BPC_QUEUE_ROUTING_KEY": "other.trigger",
        "BPC_QUEUE_NAME": "other.jobs",
        "BPC_HEALTH_REQUIRE_QUEUE": "true",
    }
    settings = queue_from(environment)
    hf = Holdfast("sqlite:///none.db", **settings)
    (status,) = hf.messengers.statuses()
    assert status.address == "amqp://passport:***@broker.example/bpc"
    assert hf.settings.messengers_required


@pytest.mark.parametrize(("own", "required"), [("", True), ("false", False), ("true", True)])
def test_the_engines_variable_counts_unless_this_system_has_its_own(
    monkeypatch: pytest.MonkeyPatch, own: str, required: bool
) -> None:
    monkeypatch.setenv("HOLDFAST_MESSENGERS_REQUIRED", "true")
    settings = queue_from({"BPC_QUEUE_ENABLED": "true", "BPC_HEALTH_REQUIRE_QUEUE": own})
    assert Holdfast("sqlite:///none.db", **settings).settings.messengers_required == required


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BPC_QUEUE_URL", URL),
        ("BPC_QUEUE_EXCHANGE", "bpc"),
        ("BPC_QUEUE_ROUTING_KEY", "jobs.trigger"),
        ("BPC_QUEUE_NAME", "jobs"),
        ("BPC_HEALTH_REQUIRE_QUEUE", "true"),
    ],
)
def test_a_variable_that_can_take_no_effect_is_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{name} is set, but has no effect") as caught:
        queue_from({name: value})
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["BPC_QUEUE_ENABLED", "BPC_HEALTH_REQUIRE_QUEUE"])
def test_a_switch_is_true_or_false(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} must be true or false, not 'perhaps'"):
        queue_from({name: "perhaps"})


@pytest.mark.parametrize("url", ["localhost:5672", "http://localhost/", "amqp://"])
def test_a_url_of_something_else_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^BPC_QUEUE_URL: a RabbitMQ URL looks like"):
        queue_from({"BPC_QUEUE_ENABLED": "true", "BPC_QUEUE_URL": url})


def test_an_option_in_the_url_is_refused_because_it_would_be_ignored() -> None:
    with pytest.raises(ConfigurationError, match=r"^BPC_QUEUE_URL: options .* no effect") as caught:
        queue_from({"BPC_QUEUE_ENABLED": "true", "BPC_QUEUE_URL": f"{URL}?exchange=other"})
    assert "other" not in str(caught.value)


def run_all(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """What `make run ONCE=1` runs."""
    return subprocess.run(
        [sys.executable, "-m", "holdfast.cli.main", "demo", "all"],
        cwd=folder,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS_MAX,
    )


def test_all_systems_run_without_the_broker_and_say_so(tmp_path: Path) -> None:
    done = run_all(tmp_path, BPC_QUEUE_ENABLED="true", BPC_QUEUE_URL=NOBODY)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "The queue is unavailable, workers poll:" in done.stdout
    assert "secret" not in done.stdout + done.stderr


def test_all_systems_refuse_a_queue_that_is_not_enabled(tmp_path: Path) -> None:
    done = run_all(tmp_path, BPC_QUEUE_URL=NOBODY)
    assert done.returncode == 1
    shown = " ".join((done.stdout + done.stderr).split())
    assert "BPC_QUEUE_URL is set, but has no effect without the queue" in shown
    assert "secret" not in shown
