"""Fixtures for all tests: fresh databases on real servers.

`store_url` is a fresh, migrated database of every kind, and on demand (`bouncer`) one behind a
PgBouncer in transaction mode; `postgres_url` a fresh, empty one on a PostgreSQL; `own_postgres` a
server that the test may stop, crash and restart. `rabbitmq` has names on a RabbitMQ that the tests
of a process share; `own_rabbitmq` is a node that the test may stop.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.domain.encryption import make_keys
from tests.mutants.guard import SOURCE
from tests.support import areas, checklist
from tests.support.bouncer import Bouncer, bouncer_program
from tests.support.pooling import EVERYTHING_BOUNCED
from tests.support.postgres import (
    Databases,
    Server,
    addresses,
    start_all,
    system_binaries,
    wheel_binaries,
)
from tests.support.rabbitmq import ADDRESS as AMQP_URL
from tests.support.rabbitmq import Names, Node, require_listening, require_rabbitmq
from tests.support.running import QUICK
from tests.support.servicebus import UNCLOSED
from tests.support.servicebus import lost_sockets as lost_sockets
from tests.support.servicebus import servicebus as servicebus
from tests.support.services import everywhere, fast, missing

TESTS = Path(__file__).parent
ADDRESSES = "HOLDFAST_TEST_POSTGRES"
TEMPLATE = "HOLDFAST_TEST_TEMPLATE"  # a migrated database, for runs inside of a run
# `pg15` is the system's server; where the system has another version it runs on that one.
BINARIES = {"pg15": system_binaries, "pg18": wheel_binaries}
SERVERS = ["pg15"] if fast() else ["pg15", "pg18"]
BOUNCED = "pg15"  # the server behind the pooler
# The layers above the stores: the short run tests them on SQLite only.
ABOVE_STORES = ("api", "browser", "cli", "dashboard", "observability", "operations")

if SOURCE not in os.environ:  # the runs on mutants have no property tests, and are many
    importlib.import_module("tests.support.properties")

_started: list[Server | Bouncer] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--whole", action="store_true", help="this run leaves out no test")


def pytest_configure(config: pytest.Config) -> None:
    # No server here speaks TLS; to make ready for it and ask takes as long as to connect.
    os.environ.setdefault("PGSSLMODE", "disable")
    os.environ.setdefault("HOLDFAST_SECRET_KEYS", make_keys("tests"))
    config.pluginmanager.register(areas.Times(), "area-times")
    if config.getoption("whole"):
        config.pluginmanager.register(checklist.Ran(), "checklist")
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        os.environ[ADDRESSES] = _start_servers()


def pytest_collection_finish() -> None:
    """What was imported and collected stays: the garbage collector need not look through it."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure(config: pytest.Config) -> None:
    while _started:
        _started.pop().remove()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # What takes long begins first, so that the end finds all processes at work.
    items.sort(key=lambda item: item.get_closest_marker("long") is None)
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "servicebus" in fixtures:
            item.add_marker(UNCLOSED)  # Azure's client leaves sockets to the garbage collector
        if "servicebus" in fixtures or "bus" in fixtures:
            item.add_marker(
                pytest.mark.slow
            )  # Azure's client opens and closes a link in half a second
    if fast():
        # A run on a mutant has chosen its test.
        left_out = ("slow",) if SOURCE in os.environ else ("slow", "heavy")
        slow = [item for item in items if any(map(item.get_closest_marker, left_out))]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]


def _start_servers() -> str:
    """Start every server that this machine can run, for this process and its children."""
    found = [(name, BINARIES[name]()) for name in SERVERS]
    servers = [Server(name, path) for name, path in found if path is not None]
    _started.extend(servers)
    start_all(servers, keep_written=True)
    program = bouncer_program()
    for server in servers:
        if program and server.name == BOUNCED:
            bouncer = Bouncer(program, server)
            _started.insert(0, bouncer)
            bouncer.start()
    return addresses(_started)


@pytest.fixture(scope="session")
def postgres_databases(worker_id: str) -> Iterator[Callable[[str], Databases]]:
    """Answer the databases of the server with this name."""
    text = os.environ.get(ADDRESSES) or _start_servers()
    databases = {
        name: Databases(url, f"test_{worker_id}_{os.getpid()}")
        for name, url in json.loads(text).items()
    }

    def of_server(name: str) -> Databases:
        if name == "bouncer":
            return databases.get(name) or missing("PgBouncer is not installed")
        return databases.get(name) or missing(f"PostgreSQL ({name}) is not installed")

    yield of_server
    for each in databases.values():
        each.close()


@pytest.fixture
def postgres_url(
    request: pytest.FixtureRequest, postgres_databases: Callable[[str], Databases]
) -> Iterator[str]:
    databases = postgres_databases(request.param)
    name = databases.create()
    yield databases.url(name)
    databases.drop(name)


@pytest.fixture(scope="session")
def migrated_template(
    postgres_databases: Callable[[str], Databases],
) -> Callable[[str], str]:
    """Answer the name of a migrated database on this server, to be copied."""
    templates: dict[str, str] = {}

    async def migrate(url: str) -> None:
        await Holdfast(url).migrate()

    def of_server(name: str) -> str:
        if name not in templates and TEMPLATE in os.environ:
            templates[name] = os.environ[TEMPLATE]
        if name not in templates:
            databases = postgres_databases(name)
            template = databases.create()
            databases.run(migrate(databases.url(template)))
            templates[name] = template
        return templates[name]

    return of_server


@pytest.fixture(scope="session")
def migrated_database(
    postgres_databases: Callable[[str], Databases], migrated_template: Callable[[str], str]
) -> Callable[[str], Iterator[str]]:
    """Make a migrated database on this server, or behind the pooler; drop it in the end."""

    def of_server(name: str) -> Iterator[str]:
        if name == BOUNCED and os.environ.get(EVERYTHING_BOUNCED) == "1":
            name = "bouncer"
        reached = postgres_databases(name)
        server = BOUNCED if name == "bouncer" else name
        databases = postgres_databases(server)
        database = databases.create(migrated_template(server))
        yield reached.url(database)
        databases.drop(database)

    return of_server


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Let a test that names no databases run on SQLite and PostgreSQL 15; on 18, too, if it is
    marked `both_postgres`, or in the long run. For the short run, see ABOVE_STORES."""
    both = everywhere() or metafunc.definition.get_closest_marker("both_postgres")
    servers = SERVERS if both else SERVERS[:1]
    area = Path(metafunc.definition.path).relative_to(TESTS).parts[0]
    stores = ["sqlite"] if fast() and area in ABOVE_STORES else ["sqlite", *servers]
    for name, databases in (("store_url", stores), ("postgres_url", servers)):
        marks = metafunc.definition.iter_markers("parametrize")
        chosen = any(name in mark.args[0] for mark in marks)  # one name, or several
        if name in metafunc.fixturenames and not chosen:
            metafunc.parametrize(name, databases, indirect=True)


@pytest.fixture
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'jobs.db'}"
        return
    yield from request.getfixturevalue("migrated_database")(request.param)


@pytest.fixture
def own_postgres() -> Iterator[Server]:
    """A server for this test alone, as durable as an installed one."""
    binaries = system_binaries() or missing("PostgreSQL is not installed")
    server = Server("own", binaries, durable=True)
    try:
        start_all([server])
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="session")
def rabbitmq_url() -> Iterator[str]:
    if url := os.environ.get(AMQP_URL):
        require_listening(url)
        yield url
        return
    with started_node() as node:
        yield node.url


@pytest.fixture
async def rabbitmq(rabbitmq_url: str) -> AsyncIterator[Names]:
    names = Names(rabbitmq_url)
    yield names
    await names.remove()


@pytest.fixture(scope="module")
def own_rabbitmq() -> Iterator[Node]:
    """A node for one test file, which leaves it running."""
    with started_node() as node:
        yield node


@contextmanager
def started_node() -> Iterator[Node]:
    require_rabbitmq()
    node = Node()
    try:
        node.start()
        yield node
    finally:
        node.remove()


@pytest.fixture
async def hf(store_url: str) -> AsyncIterator[Holdfast]:
    async with Holdfast(store_url, **QUICK) as app:
        yield app


@pytest.fixture
def local_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'jobs.db'}"


@pytest.fixture
async def local_hf(local_url: str) -> AsyncIterator[Holdfast]:
    """For what does not depend on the store."""
    async with Holdfast(local_url, **QUICK) as app:
        yield app
