"""What another AMQP client may do that Azure's Python client does not: proton's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import proton
import pytest
from proton.utils import BlockingConnection, BlockingReceiver, LinkDetached, SendException

from holdfast.servicebus_local import LocalServiceBus
from holdfast.servicebus_local.limits import LINKS_MAX, OUTGOING_BYTES_MAX
from tests.servicebus_local.signatures import signed
from tests.support.processes import WAIT_SECONDS

FRAME_BYTES = 16_384


@contextmanager
def connection(bus: LocalServiceBus, **options: Any) -> Iterator[BlockingConnection]:
    connected = BlockingConnection(
        f"{bus.host}:{bus.port}", timeout=WAIT_SECONDS, allowed_mechs="ANONYMOUS", **options
    )
    try:
        yield connected
    finally:
        connected.close()


def ask(connected: BlockingConnection, node: str, properties: dict[str, Any], body: Any) -> Any:
    """Send a request to a node; answer its response."""
    receiver, sender = connected.create_receiver(node), connected.create_sender(node)
    request = proton.Message(id=7, reply_to=node, properties=properties, body=body)
    sender.send(request)
    response = receiver.receive()
    assert response.correlation_id == 7
    for link in (receiver, sender):
        link.close()  # type: ignore[no-untyped-call]
    return response


def body_bytes(receiver: BlockingReceiver) -> int:
    """How large the next message is."""
    body: Any = receiver.receive().body
    return len(body)


def authorize(bus: LocalServiceBus, connected: BlockingConnection) -> None:
    """For the whole namespace."""
    address = f"sb://{bus.host}:{bus.port}"
    token = signed(address, expires_seconds=2**31)
    response = ask(
        connected, "$cbs", {"operation": "put-token", "type": "sas", "name": address}, token
    )
    assert response.properties["status-code"] == 202


@pytest.fixture
def client(bus: LocalServiceBus) -> Iterator[BlockingConnection]:
    with connection(bus) as connected:
        authorize(bus, connected)
        yield connected


def test_without_a_token_every_link_is_refused(bus: LocalServiceBus) -> None:
    for address in ("jobs", "jobs/$management", "nowhere"):
        with connection(bus) as connected:
            with pytest.raises(LinkDetached, match="unauthorized-access"):
                connected.create_sender(address)
            with pytest.raises(LinkDetached, match="unauthorized-access"):
                connected.create_receiver(address)


def test_a_queue_that_was_not_declared_is_not_found(client: BlockingConnection) -> None:
    for address in ("nowhere", "nowhere/$management", "jobs/$nothing", ""):
        with pytest.raises(LinkDetached, match="not-found"):
            client.create_receiver(address)


def test_the_names_of_queues_ignore_case(bus: LocalServiceBus, client: BlockingConnection) -> None:
    client.create_sender("JOBS").send(proton.Message(body="x"))
    assert len(bus.messages("Jobs")) == 1


def test_what_is_no_message_is_rejected_and_the_link_keeps_working(
    bus: LocalServiceBus, client: BlockingConnection
) -> None:
    sender = client.create_sender("jobs")
    with pytest.raises(SendException):
        sender.send(Raw(b"no message"))  # type: ignore[arg-type]
    sender.send(proton.Message(body="a message"))
    assert len(bus.messages("jobs")) == 1


class Raw:
    """Bytes that a sender takes for an encoded message."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def send(self, sender: proton.Sender, tag: str | None = None) -> proton.Delivery:
        delivery = sender.delivery(tag or sender.delivery_tag())
        sender.stream(self.content)
        sender.advance()
        return delivery


def test_abandoning_may_change_properties(bus: LocalServiceBus, client: BlockingConnection) -> None:
    client.create_sender("jobs").send(proton.Message(body="x", properties={"a": 1}))
    receiver = client.create_receiver("jobs", credit=1)
    receiver.receive()
    assert receiver.fetcher is not None
    (delivery,) = receiver.fetcher.unsettled
    delivery.local.failed = True
    delivery.local.annotations = {proton.symbol("tried"): 1}
    receiver.settle(proton.Delivery.MODIFIED)
    client.wait(lambda: bus.messages("jobs")[0].delivery_count == 1)
    assert bus.messages("jobs")[0].application_properties == {"a": 1, "tried": 1}


def test_a_rejection_without_reasons_is_a_dead_letter_too(
    bus: LocalServiceBus, client: BlockingConnection
) -> None:
    client.create_sender("jobs").send(proton.Message(body="x"))
    receiver = client.create_receiver("jobs", credit=1)
    receiver.receive()
    receiver.reject()
    client.wait(lambda: bool(bus.dead_letters("jobs")))
    assert [dead.reason for dead in bus.dead_letters("jobs")] == [None]


def test_draining_gives_what_there_is_and_takes_back_the_rest_of_the_credit(
    client: BlockingConnection,
) -> None:
    sender = client.create_sender("jobs")
    for _ in range(2):
        sender.send(proton.Message(body="x"))
    receiver = client.create_receiver("jobs", credit=0)
    link = receiver.link
    link.drain(5)
    client.wait(lambda: not link.draining())
    assert [receiver.receive().body for _ in range(2)] == ["x", "x"]
    sender.send(proton.Message(body="later"))
    link.drain_mode = False
    link.flow(1)
    assert receiver.receive().body == "later"


def test_a_client_that_reads_slowly_gets_everything_in_the_end(
    bus: LocalServiceBus, client: BlockingConnection
) -> None:
    body = b"x" * 200_000
    count = 3 * OUTGOING_BYTES_MAX // len(body)
    sender = client.create_sender("jobs")
    for _ in range(count):
        sender.send(proton.Message(body=body))
    receiver = client.create_receiver("jobs", credit=count)
    for _ in range(count):
        assert body_bytes(receiver) == len(body)
    for _ in range(count):
        receiver.accept()
    client.wait(lambda: not bus.messages("jobs"))


def test_a_client_that_stops_reading_holds_up_nobody_else(bus: LocalServiceBus) -> None:
    body = b"x" * 200_000
    with connection(bus, max_frame_size=FRAME_BYTES) as stuck, connection(bus) as other:
        for each in (stuck, other):
            authorize(bus, each)
        sender = other.create_sender("jobs")
        for _ in range(2 * OUTGOING_BYTES_MAX // len(body)):
            sender.send(proton.Message(body=body))
        assert stuck.conn is not None
        session = stuck.conn.session()
        session.incoming_capacity = FRAME_BYTES
        session.open()
        receiver = session.receiver("stuck")
        receiver.source.address = "jobs"
        receiver.open()
        receiver.flow(1000)
        stuck.wait(lambda: receiver.queued > 0)
        assert body_bytes(other.create_receiver("jobs", credit=1)) == len(body)
        assert "active" in [each.state for each in bus.messages("jobs")]  # kept back


def test_a_connection_has_only_so_many_links(client: BlockingConnection) -> None:
    with pytest.raises(LinkDetached, match="resource-limit-exceeded"):
        attach_many(client)


def attach_many(client: BlockingConnection) -> None:
    for number in range(LINKS_MAX + 10):
        client.create_sender("jobs", name=str(number))


@pytest.mark.parametrize(
    ("properties", "body", "condition"),
    [
        ({}, {}, "argument-error"),
        ({"operation": "com.microsoft:unheard-of"}, {}, "not-implemented"),
        ({"operation": "com.microsoft:renew-lock"}, {}, "argument-error"),
        ({"operation": "com.microsoft:renew-lock"}, {"lock-tokens": ["x"]}, "argument-error"),
        ({"operation": "com.microsoft:peek-message"}, "no map", "argument-error"),
        ({"operation": "com.microsoft:schedule-message"}, {"messages": [{}]}, "argument-error"),
        (
            {"operation": "com.microsoft:schedule-message"},
            {"messages": [{"message": b"garbage"}]},
            "decode-error",
        ),
        ({"operation": "com.microsoft:get-session-state"}, {"session-id": "a"}, "session-lock"),
        (
            {"operation": "com.microsoft:update-disposition"},
            {"disposition-status": "painted", "lock-tokens": []},
            "argument-error",
        ),
    ],
)
def test_a_request_that_makes_no_sense_is_answered(
    client: BlockingConnection, properties: dict[str, Any], body: Any, condition: str
) -> None:
    response = ask(client, "jobs/$management", properties, body)
    assert response.properties["statusCode"] >= 400
    assert condition in response.properties["errorCondition"]


@pytest.mark.parametrize("token", ["nonsense", "SharedAccessSignature sr=x", 5, None])
def test_a_token_that_makes_no_sense_is_answered(bus: LocalServiceBus, token: Any) -> None:
    with connection(bus) as connected:
        request = {"operation": "put-token", "type": "sas", "name": "sb://here/jobs"}
        response = ask(connected, "$cbs", request, token)
    assert response.properties["status-code"] in (400, 401)
