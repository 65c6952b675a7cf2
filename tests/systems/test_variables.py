"""Variables of the five systems: each takes effect, or is refused at start with a reason."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from holdfast import ConfigurationError
from holdfast.settings import read_settings as read_engine
from holdfast_systems.compute.appserver.faults import read_faults
from holdfast_systems.environment import is_set
from holdfast_systems.passport.app import settings_from
from tests.support.processes import Process

pytestmark = pytest.mark.heavy

RABBITMQ = "amqp://app:hunter2@localhost/"
SERVICE_BUS = "Endpoint=sb://local/;SharedAccessKeyName=app;SharedAccessKey=hunter2;EntityPath=jobs"
CONVERT = {"GATEWAY_URL": "http://gateway:8080"}
APPS = {
    "compute": "holdfast_systems.compute.app",
    "convert": "holdfast_systems.convert.app",
    "documents": "holdfast_systems.documents.app",
    "passport": "holdfast_systems.passport.app",
}


async def start(system: str, folder: Path, environment: dict[str, str]) -> tuple[int, str]:
    """Start the system's app; return the exit code and what it said."""
    url = {"HOLDFAST_DATABASE_URL": f"sqlite:///{folder / 'jobs.db'}"}
    command = ["-m", "holdfast.cli.main", "migrate", f"{APPS[system]}:hf"]
    with TemporaryDirectory() as written:
        process = Process(system, command, folder, url | environment, Path(written))
        try:
            code = await asyncio.to_thread(process.wait)
        finally:
            process.kill()
        return code, process.text


@pytest.mark.parametrize(
    ("system", "environment", "told"),
    [
        ("passport", {"BPC_QUEUE_URL": RABBITMQ}, "BPC_QUEUE_URL is set, but has no effect"),
        ("passport", {"BPC_QUEUE_ENABLED": "perhaps"}, "BPC_QUEUE_ENABLED must be true or false"),
        ("passport", {"BPC_WEBHOOKS_LOCAL": "no!"}, "BPC_WEBHOOKS_LOCAL must be true or false"),
        ("passport", {"BPC_JOBS_LEASE_SECONDS": "long"}, "BPC_JOBS_LEASE_SECONDS must be a"),
        (
            "passport",
            {"BPC_SIGNING_KEYS": "hunter2", "BPC_SIGNING_KEYS_FILE": "keys.json"},
            "BPC_SIGNING_KEYS is set, but has no effect beside BPC_SIGNING_KEYS_FILE",
        ),
        ("convert", CONVERT | {"HOLDFAST_CONCURRENCY": "9"}, "set WORKER_CONCURRENCY instead"),
        ("convert", CONVERT | {"HOLDFAST_MAX_ATTEMPTS": "9"}, "set RETRY_MAX_ATTEMPTS instead"),
        ("convert", CONVERT | {"RETRY_MAX_ATTEMPTS": "few"}, "RETRY_MAX_ATTEMPTS must be a number"),
        ("compute", {"SERVICEBUS_QUEUE": "jobs"}, "SERVICEBUS_QUEUE is set, but has no effect"),
        ("compute", {"LOCK_RENEW_SEC": "45"}, "LOCK_RENEW_SEC is set, but has no effect"),
        (
            "compute",
            {"SERVICEBUS_CONN": SERVICE_BUS, "LOCK_RENEW_SEC": "1"},
            "LOCK_RENEW_SEC=1 has no effect",
        ),
        ("compute", {"MAX_DELIVERY_COUNT": "0"}, "MAX_DELIVERY_COUNT must be from 1"),
        ("documents", {"SALESFORCE_URL": "postgresql://db/"}, "set SALESFORCE_URL to its host"),
    ],
)
async def test_a_variable_that_can_not_take_effect_stops_the_start_with_one_line(
    tmp_path: Path, system: str, environment: dict[str, str], told: str
) -> None:
    code, said = await start(system, tmp_path, environment)
    assert code == 1, said
    assert told in said
    assert len(said.splitlines()) == 1
    assert "hunter2" not in said


@pytest.mark.parametrize("name", ["FAIL_ONCE", "FAULT_OUTPUTS"])
def test_switches_of_the_appserver_are_on_or_off(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} must be true or false, not 'maybe'"):
        read_faults({name: "maybe"})


@pytest.mark.parametrize("text", ["1", "true", "YES", "on", "", "0", "False", "no", "off"])
def test_a_switch_has_many_spellings(text: str) -> None:
    assert is_set({"SWITCH": text}, "SWITCH") == (text.lower() in ("1", "true", "yes", "on"))


def test_the_engines_own_variables_change_the_passports_defaults() -> None:
    """Its own names win over them."""
    assert settings_from({"HOLDFAST_LEASE_SECONDS": "20"}) == {"poll_seconds": 1.0}
    assert settings_from({"HOLDFAST_RENEW_SECONDS": "9"}) == {
        "lease_seconds": 60.0,
        "poll_seconds": 1.0,
    }
    own = {"HOLDFAST_LEASE_SECONDS": "20", "BPC_JOBS_LEASE_SECONDS": "40"}
    settings = read_engine(settings_from(own))
    assert (settings.lease_seconds, settings.renewal_seconds) == (40, 20)
