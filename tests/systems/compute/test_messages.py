"""The messages about requests, and the variables that switch them on."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any
from uuid import UUID

import jsonschema_rs
import pytest

from holdfast import ConfigurationError
from holdfast.messengers import ServiceBusEscort
from holdfast.servicebus_local import QueueOptions
from holdfast_systems.compute.messages import Messages, make_holdfast
from holdfast_systems.compute.service import Compute, RunRequest
from holdfast_systems.compute.settings import read_settings
from tests.support.processes import wait_until
from tests.support.servicebus import StartBus
from tests.systems.compute.stage import INPUTS

CONNECTION = "Endpoint=sb://local/;SharedAccessKeyName=app;SharedAccessKey=secret"


def schema() -> Any:
    path = files("holdfast_systems.compute").joinpath("contracts/message.schema.json")
    return json.loads(path.read_bytes())


def environment(url: str, **variables: str) -> dict[str, str]:
    return {"DATABASE_URL": url, **variables}


async def test_a_message_has_the_shape_of_its_schema(local_url: str, servicebus: StartBus) -> None:
    bus = servicebus({"jobs": QueueOptions()})
    variables = environment(
        local_url, SERVICEBUS_CONN=bus.connection_string, SERVICEBUS_QUEUE="jobs"
    )
    settings, messages = read_settings(variables), Messages()
    hf = make_holdfast(settings, messages, variables)
    compute = Compute(hf, settings, messages)
    async with hf:
        asked = RunRequest("me", "house-fit", "1.0.0", INPUTS, priority=7)
        job_id = await compute.run(asked, hf.for_tenant("acme"), "order-1")
        await wait_until(lambda: bus.messages("jobs"), "sent")
    (message,) = bus.messages("jobs")
    body = json.loads(message.body)
    jsonschema_rs.validator_for(schema(), validate_formats=True).validate(body)
    assert set(body) == set(schema()["properties"])
    contract = compute.contracts.find("house-fit", "1.0.0")
    contract.inputs.check(body["payload"])
    assert UUID(body["job_id"]) == job_id
    assert (body["tenant_id"], body["app_id"], body["priority"]) == ("acme", "me", 7)
    assert message.session_id == "acme"
    assert message.application_properties["x-correlation-id"] == "order-1"
    assert message.application_properties["attempt"] == 0


def test_the_schema_takes_the_id_alone_and_no_half_of_a_request() -> None:
    validator = jsonschema_rs.validator_for(schema())
    validator.validate({"job_id": "01a1e284-afea-73d7-b713-e7a1ac32a732"})
    assert not validator.is_valid({"job_id": "x", "payload": {}})


def test_variables_of_service_bus_take_effect_or_are_refused(local_url: str) -> None:
    whole = environment(
        local_url, SERVICEBUS_CONN=CONNECTION, SERVICEBUS_QUEUE="jobs", LOCK_RENEW_SEC="20"
    )
    settings = read_settings(whole)
    assert "secret" not in repr(settings)
    hf = make_holdfast(settings, Messages(), whole | {"HOLDFAST_MESSENGERS": "amqp://localhost/"})
    names = [type(each).__name__ for each in hf.messengers]
    assert names == ["RabbitMQ", "ServiceBusEscort"]
    for each in hf.messengers:
        if isinstance(each, ServiceBusEscort):
            assert each.status().address == "servicebus://local/jobs"
    plain = environment(local_url)
    assert [*make_holdfast(read_settings(plain), Messages(), plain).messengers] == []


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"SERVICEBUS_QUEUE": "jobs"}, "SERVICEBUS_QUEUE is set, but has no effect without"),
        ({"LOCK_RENEW_SEC": "45"}, "LOCK_RENEW_SEC is set, but has no effect without"),
        ({"SERVICEBUS_CONN": CONNECTION}, "name the queue"),
        ({"SERVICEBUS_CONN": "secret", "SERVICEBUS_QUEUE": "jobs"}, "a connection string of"),
        (
            {"SERVICEBUS_CONN": f"{CONNECTION};EntityPath=bills", "SERVICEBUS_QUEUE": "jobs"},
            "is for the queue 'bills'",
        ),
        (
            {"SERVICEBUS_CONN": CONNECTION, "SERVICEBUS_QUEUE": "jobs", "LOCK_RENEW_SEC": "soon"},
            "LOCK_RENEW_SEC must be a number",
        ),
        (
            {"SERVICEBUS_CONN": CONNECTION, "SERVICEBUS_QUEUE": "jobs", "LOCK_RENEW_SEC": "301"},
            "LOCK_RENEW_SEC: the renewal of message locks must be",
        ),
        (
            {"SERVICEBUS_CONN": CONNECTION, "SERVICEBUS_QUEUE": "jobs", "LOCK_RENEW_SEC": "5"},
            "set HOLDFAST_RENEW_SECONDS=5, too",
        ),
    ],
)
def test_a_variable_without_effect_is_refused_without_its_key(
    tmp_path: Path, variables: dict[str, str], told: str
) -> None:
    given = environment(f"sqlite:///{tmp_path / 'jobs.db'}", **variables)
    with pytest.raises(ConfigurationError, match=told) as caught:
        make_holdfast(read_settings(given), Messages(), given)
    assert "secret" not in str(caught.value)
