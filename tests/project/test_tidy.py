"""Style as a test: what no linter says about this project."""

from __future__ import annotations

import ast
import os
import re
import tomllib
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from itertools import chain
from pathlib import Path

import pytest

from holdfast.api import limits as api_limits
from holdfast.dashboard import limits as dashboard_limits
from holdfast.domain import limits
from holdfast.servicebus_local import limits as bus_limits
from tests.project import rules
from tests.support.forks import ROOT
from tests.support.pages import assert_documented

DOC_COLUMNS_MAX = 100
FUNCTION_LINES_MAX = 60
MODULE_LINES_MAX = 500
UNREAD = {".git", "__pycache__", "build", "dist", "node_modules"}
SQL_FOLDERS = ("stores", "wakeups", "transactions", "webhooks", "operations", "worker")

# The only places where tests may sleep. Everything else waits for a signal, for a lock, or for
# time that the test controls: tests/support/fast_forward.py and holdfast.testing.
SLEEPS = {
    # The pause between two looks of a wait for a condition.
    "tests/support/processes.py::wait_until": "checks again until its deadline",
    "tests/support/processes.py::poll": "checks again, inside a worker process",
    "tests/support/processes.py::poll_blocking": "checks again, and blocks the loop on purpose",
    "tests/support/proxy.py::Proxy._close": "cuts connections until none is left",
    "tests/support/rabbitmq.py::Node._await": "checks again until its deadline",
    "tests/support/terminal.py::Terminal.interrupt": "checks again until the command is idle",
    # Crashes and faults of real processes: the pause is the fault, or the pace of a client.
    "tests/promises/blocking.py::block_by_turns": "the fault: a handler that blocks the loop",
    "tests/promises/handlers.py::block": "the fault: a handler that blocks the loop",
    "tests/promises/handlers.py::linger": "works for a while, so that a kill interrupts it",
    "tests/promises/handlers.py::poison": "gives its neighbors time to start before it kills them",
    "tests/promises/clients.py::enqueue_through_failures": "the pace of a client",
    "tests/promises/test_01_acknowledged_enqueue_is_never_lost.py"
    "::test_clients_killed_at_random_moments_lose_nothing_acknowledged": "kills at random moments",
    "tests/promises/test_03_an_old_fence_changes_nothing.py"
    "::test_a_database_that_was_busy_longer_than_a_lease_loses_none": "the fault: a busy database",
    "tests/promises/test_09_wake_ups_cost_latency_only.py"
    "::test_every_job_runs_though_every_wake_up_is_lost": "the pace of a client, between two polls",
    "tests/promises/test_13_database_strain.py::while_nothing_answers": "the fault: an outage",
    "tests/promises/test_13_no_silent_death.py"
    "::test_an_outage_longer_than_a_lease_starts_no_running_job_again": "the fault: an outage",
    "tests/promises/test_13_database_strain.py::Crowd._take_all": "the pace of a crowd of clients",
    "tests/promises/test_13_database_strain.py"
    "::test_workers_log_that_a_server_has_no_free_connections_and_wait": "the pace of the crowd",
    "tests/promises/test_crash_run.py::kill_workers": "kills at random moments",
    "tests/promises/test_crash_run.py"
    "::test_20_kills_of_workers_lose_no_job_and_finish_none_twice": "calls kill_workers",
    "tests/wakeups/test_outages.py::Load.send": "the pace of a client",
    "tests/support/slow_network.py::SlowProxy._forward": "the fault: a slow network",
    "tests/support/slow_network.py::_at": "the fault: a slow network",
    "tests/worker/child_jobs.py::copy_the_worker": "the fault: a process that somebody has to end",
    "tests/worker/child_jobs.py::start_others": "the fault: a process that somebody has to end",
    # Virtual time: no second passes.
    "tests/worker/test_prefetch.py::Watched._take": "virtual time",
    "tests/worker/test_prefetch.py"
    "::test_jobs_of_a_breaker_that_has_opened_do_not_start.story.ask": "virtual time",
    "tests/worker/test_reclaimer.py::SlowLooks.unknown_names": "virtual time",
    "tests/worker/test_reclaimer.py::SlowAnswers.reclaim": "virtual time",
    "tests/worker/test_reclaimer.py::SlowToOpen.open": "virtual time",
    "tests/worker/test_reclaimer.py::LateBatches.reclaim": "virtual time",
}

# The only places where tests may replace an attribute of what they test.
PATCHES = {
    "tests/stores/postgres/test_horizon.py::Worker.pass_time": (
        "the server's clock does not move with the worker's"
    ),
    "tests/observability/test_tracing.py::provided": (
        "OpenTelemetry sets its global provider once per process, and each test needs another"
    ),
}

# Where SQL may be put together, and of what. Everything else is a block in a .sql file.
SQL_BUILDERS = {
    "src/holdfast/stores/statements.py::include": "parts from .sql files: the one loader",
    "src/holdfast/stores/statements.py::_statement": "the numbers of parameters",
    "src/holdfast/transactions/drivers/placeholders.py::percent_style": "the style of parameters",
    "src/holdfast/transactions/drivers/placeholders.py::colon_style": "the style of parameters",
    "src/holdfast/stores/postgres/enrolled.py::_with_casts": "types around parameters",
    "src/holdfast/stores/postgres/connections.py::Connections.__init__": (
        "limits in seconds: SET takes no parameters"
    ),
    "src/holdfast/stores/postgres/row_security.py::_settings_of": (
        "the tenant as a literal: SET takes no parameters"
    ),
    "src/holdfast/stores/sqlite/enqueue.py::": "as many rows of question marks as there are jobs",
    "src/holdfast/stores/sqlite/queries.py::": "each source of jobs before each way to read it",
    "src/holdfast/transactions/tables.py::_load": "SQLite has no schemas: their names are dropped",
}


def files(folder: str = ".", name: str = "*") -> Iterator[Path]:
    for place, folders, names in os.walk(ROOT / folder):
        folders[:] = sorted(each for each in folders if not _is_unread(each))
        yield from (
            Path(place, each) for each in sorted(names) if fnmatch(each, name) and each != ".git"
        )


def _is_unread(folder: str) -> bool:
    hidden = folder.startswith(".") and folder != ".ci"
    return hidden or folder in UNREAD or folder.endswith(".egg-info")


def texts(folder: str = ".", name: str = "*") -> Iterator[tuple[Path, str]]:
    for path in files(folder, name):
        content = path.read_bytes()
        if b"\0" not in content:
            yield path, content.decode("utf-8")


def trees(folder: str) -> Iterator[tuple[Path, ast.Module]]:
    for path, text in texts(folder, "*.py"):
        yield path, ast.parse(text)


def place(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def lines_with(pattern: str, folder: str = ".", name: str = "*") -> list[str]:
    return [
        f"{place(path, number)}: {line.strip()[:100]}"
        for path, text in texts(folder, name)
        for number, line in enumerate(text.splitlines(), 1)
        if re.search(pattern, line)
    ]


def called(node: ast.AST) -> str:
    """The dotted name of what a call calls."""
    return ast.unparse(node.func) if isinstance(node, ast.Call) else ""


def places(path: Path, found: Iterable[rules.Found]) -> list[str]:
    """Where each was found: the file and the function, which stay when lines are moved."""
    return [f"{path.relative_to(ROOT)}::{each.function}" for each in found]


def assert_excused(found: Iterable[str], excused: Iterable[str], name: str, instead: str) -> None:
    new = sorted({*found} - {*excused})
    assert new == [], f"{instead}; if that can't be, add the place and the reason to {name} above"
    assert sorted({*excused} - {*found}) == [], f"no longer needed: remove it from {name} above"


def test_tests_wait_on_signals_and_never_sleep() -> None:
    tests = [(path, tree) for path, tree in trees("tests") if path.parent.name != "project"]
    helpers = frozenset(name for _, tree in tests for name in rules.hiding_sleeps(tree))
    found = [place for path, tree in tests for place in places(path, rules.sleeps(tree, helpers))]
    assert_excused(found, SLEEPS, "SLEEPS", "wait for a condition: tests/support/processes.py")


def test_tests_wait_with_the_patience_that_a_busy_machine_needs() -> None:
    tests = trees("tests")
    found = [place for path, tree in tests for place in places(path, rules.short_waits(tree))]
    assert found == [], "use WAIT_SECONDS of tests/support/processes.py"


@pytest.mark.parametrize(
    "waits",
    [
        "assert done.wait(10)",
        "future.result(timeout=5)",
        "thread.join(1.5)",
        "await asyncio.wait_for(done.wait(), 10)",
        "async with asyncio.timeout(20):\n    await done.wait()",
        "subprocess.run(command, timeout=30)",
    ],
)
def test_a_short_wait_is_found(waits: str) -> None:
    assert list(rules.short_waits(ast.parse(waits)))
    for patience in ("WAIT_SECONDS", "60", "0.05"):
        patient = re.sub(r"(?<=[ (=])[\d.]+(?=\))", patience, waits)
        assert list(rules.short_waits(ast.parse(patient))) == []


def test_tests_use_real_parts_and_no_mocks() -> None:
    source, tests = [tree for _, tree in trees("src")], list(trees("tests"))
    data = {name for tree in [*source, *(tree for _, tree in tests)] for name in rules.fields(tree)}
    ours = {name for tree in source for name in rules.functions(tree)} - data
    found = [place for path, tree in tests for place in places(path, rules.patches(tree, ours))]
    assert_excused(found, PATCHES, "PATCHES", "pass another part in, or use the seam")


@pytest.mark.parametrize(
    "hidden",
    [
        "await asyncio.sleep(1)",
        "from time import sleep as rest\nrest(1)",
        "threading.Event().wait(0.5)",
        "await asyncio.wait_for(asyncio.Event().wait(), 1)",
        "await asyncio.wait({task}, timeout=0.2)",
        "select.select([], [], [], 0.1)",
        "loop.call_later(1.0, done.set)",
        "loop.call_at(loop.time() + 1, done.set)",
        "await wait_until(lambda: time.time() > end, 'over')",
        "threading.Timer(1.0, done.set)",
        "with suppress(TimeoutError):\n    await asyncio.wait_for(reader.read(), 1)",
        "with pytest.raises(TimeoutError):\n    async with asyncio.timeout(1):\n        await it",
        "run('SELECT pg_sleep(1)')",
        "run('import time; time.sleep(1)')",
        "run(['sleep', '60'])",
    ],
)
def test_a_sleep_is_found_by_any_name(hidden: str) -> None:
    assert list(rules.sleeps(ast.parse(hidden)))


def test_a_sleep_is_found_behind_a_helper() -> None:
    helper = ast.parse("async def nap(seconds): await asyncio.sleep(seconds)")
    assert set(rules.hiding_sleeps(helper)) == {"nap"}
    assert list(rules.sleeps(ast.parse("await nap(1)"), frozenset({"nap"})))


@pytest.mark.parametrize(
    "waits",
    [
        "await asyncio.sleep(0)",
        "await asyncio.wait({task}, timeout=0)",
        "await done.wait()",
        "assert done.wait(10)",
        "await asyncio.wait_for(done.wait(), 10)",
        "async with asyncio.timeout(10):\n    await done.wait()",
    ],
)
def test_a_wait_for_a_condition_is_not_a_sleep(waits: str) -> None:
    assert list(rules.sleeps(ast.parse(waits))) == []


@pytest.mark.parametrize(
    "patch",
    [
        "store.claim = watched",
        "hf._look = other",
        "setattr(store, 'claim', watched)",
        "monkeypatch.setattr(store, 'claim', watched)",
        "patch.setattr(Store, 'claim', watched)",
        "object.__setattr__(job, 'id', 1)",
        "from unittest import mock",
        "from holdfast import app\napp.Holdfast = Other",
    ],
)
def test_a_patch_is_found_by_any_spelling(patch: str) -> None:
    assert list(rules.patches(ast.parse(patch), {"claim"}))


@pytest.mark.parametrize(
    "built",
    [
        "f'SELECT {column} FROM jobs'",
        "'DELETE FROM ' + table",
        "'UPDATE %s' % table",
        "'SELECT {}'.format(column)",
        "' '.join(['SELECT 1', where])",
        "read_sql(__package__, 'jobs.sql').replace('{part}', part)",
        "text = read_sql(__package__, 'jobs.sql')\ntext = text.replace('{part}', part)",
        "f'{statement.sql} LIMIT 1'",
    ],
)
def test_sql_from_pieces_is_found_however_it_is_built(built: str) -> None:
    assert list(rules.built_sql(ast.parse(built)))


def test_lines_of_the_docs_are_not_too_long() -> None:
    """Rows of tables can't be broken, and figures are written by `make bench`."""
    figures = re.compile("<!-- figures -->.*<!-- end of figures -->", re.DOTALL)
    long = [
        f"{path.relative_to(ROOT)}: {line[:80]}"
        for path, text in texts(name="*.md")
        for line in figures.sub("", text).splitlines()
        if len(line) > DOC_COLUMNS_MAX and not line.startswith("|")
    ]
    assert long == [], f"break these lines: at most {DOC_COLUMNS_MAX} columns"


def test_nothing_is_left_for_later() -> None:
    assert lines_with(r"\b(TO)(DO)\b|\b(FIX)(ME)\b|\b(X)(XX)\b") == []


def test_no_machine_and_no_registry_is_named() -> None:
    paths = r"/(root|work|farm)/|/home/(?!user/)\w+/"
    hosts = r"(?i)(py)(pi)\.(org|io)|(files)\.(python)|(npm)(js)\.(org|com)|(deb)\.(deb)"
    assert lines_with(paths) == []
    assert lines_with(hosts) == []


def test_the_engine_contains_no_customers_preset() -> None:
    """What a database has to be upgraded from stays as it was."""
    named = lines_with(r"(?i)bpc", "src/holdfast")
    assert [line for line in named if "/migrations/" not in line] == []


def test_functions_fit_on_a_screen() -> None:
    long = [
        f"{place(path, node.lineno)} {node.name}"
        for path, tree in trees("src")
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or node.lineno) - node.lineno >= FUNCTION_LINES_MAX
    ]
    assert long == [], f"split these: a function has fewer than {FUNCTION_LINES_MAX} lines"


def test_modules_fit_in_a_sitting() -> None:
    counts = {str(path): len(text.splitlines()) for path, text in texts("src", "*.py")}
    long = {path: count for path, count in counts.items() if count > MODULE_LINES_MAX}
    assert long == {}, f"split these: a module has at most {MODULE_LINES_MAX} lines"


def test_the_worker_in_javascript_has_40_lines() -> None:
    text = (ROOT / "examples/javascript_worker/worker.mjs").read_text(encoding="utf-8")
    code = [line for line in text.splitlines() if not re.match(r"\s*(//|$)", line)]
    assert len(code) <= 40
    assert max(map(len, text.splitlines())) <= DOC_COLUMNS_MAX


def test_only_the_seam_reads_a_clock() -> None:
    clocks = re.compile(r"(^|\.)(datetime\.(now|utcnow|today)|date\.today|time\.(time|time_ns))$")
    readers = [
        f"{place(path, node.lineno)} {called(node)}"
        for path, tree in trees("src")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and clocks.search(called(node)) and path.name != "seam.py"
    ]
    assert readers == [], "take the time from a seam: holdfast/runtime/seam.py"


def test_sql_is_put_together_by_one_loader_from_files() -> None:
    found = [
        place
        for folder in SQL_FOLDERS
        for path, tree in trees(f"src/holdfast/{folder}")
        for place in places(path, rules.built_sql(tree))
        if not place.endswith(".translated")  # sentences of errors
    ]
    assert_excused(found, SQL_BUILDERS, "SQL_BUILDERS", "write it as a block of a .sql file")


def test_only_the_command_line_prints() -> None:
    printers = [
        place(path, node.lineno)
        for path, tree in trees("src")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and called(node) == "print" and "cli" not in path.parts
    ]
    assert printers == [], "log an event instead: holdfast/observability/logs.py"


def test_every_limit_is_documented_with_its_value() -> None:
    page = "docs/reference/limits.md"
    text = (ROOT / page).read_text(encoding="utf-8")
    documented = dict(re.findall(r"^\| `(\w+)` \| ([-\d,.]+) \|", text, re.MULTILINE))
    known = {
        **vars(limits),
        **vars(api_limits),
        **vars(bus_limits),
        **vars(dashboard_limits),
    }
    named = {
        name: f"{int(value) if value == int(value) else value:,}"
        for name, value in known.items()
        if name.isupper()
    }
    assert_documented(page, documented, named)


def test_locks_pin_every_package_by_hash_and_name_no_address() -> None:
    for path, text in texts("requirements", "*.txt"):
        entries = re.split(r"\n(?=\S)", re.sub(r"(?m)^\s*#.*\n?", "", text).strip())
        loose = [entry for entry in entries if "==" not in entry or "--hash=sha256:" not in entry]
        assert loose == [], path.name
        assert re.findall(r"://|^-", text, re.MULTILINE) == [], path.name


def pins(name: str) -> dict[str, str]:
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    return dict(re.findall(r"^(\S+)==(\S+)", text, re.MULTILINE))


def test_the_full_lock_contains_the_runtime_lock() -> None:
    assert pins("runtime.txt").items() <= pins("dev.txt").items()


def test_every_dependency_has_a_lower_bound_that_the_lock_keeps() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [names for extra, names in project["optional-dependencies"].items() if extra != "all"]
    locked = pins("runtime.txt")
    for requirement in [*project["dependencies"], *chain(*extras)]:
        bound = re.match(r"([\w-]+)>=([\d.]+)(;|$)", requirement)
        assert bound, requirement
        lowest, held = (
            [int(part) for part in version.split(".")] for version in (bound[2], locked[bound[1]])
        )
        assert lowest <= held, requirement
