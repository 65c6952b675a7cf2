"""The pytest plugin, in runs of pytest of its own, where every warning is an error."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.heavy

APP = """
import pytest
from holdfast import Holdfast

hf = Holdfast("sqlite:///never-used.db")
ran = []


@hf.job
async def greet(name: str) -> str:
    ran.append(name)
    return f"Hello, {name}"


@pytest.fixture
def holdfast_app():
    return hf
"""
ASYNC_TESTS = """
import gc
import pytest
from conftest import greet, hf, ran


@pytest.mark.{runner}
async def test_it_runs(holdfast_sandbox):
    job = await greet.enqueue("Ann")
    assert (await holdfast_sandbox.drain()).succeeded == 1
    assert (await hf.get(job.id)).result == "Hello, Ann"


@pytest.mark.{runner}
async def test_it_starts_empty(holdfast_sandbox):
    assert await holdfast_sandbox.jobs() == []
    assert holdfast_sandbox.url.startswith("{scheme}:")


def test_nothing_was_left_open():
    gc.collect()  # warns of it
"""
SYNC_TESTS = """
from conftest import greet, hf


def test_it_runs(holdfast_sandbox):
    job = greet.enqueue_sync("Ann")
    assert holdfast_sandbox.drain_sync().succeeded == 1
    assert hf.get_sync(job.id).result == "Hello, Ann"


def test_it_starts_empty(holdfast_sandbox):
    assert holdfast_sandbox.jobs_sync() == []
    assert holdfast_sandbox.url.startswith("{scheme}:")
"""
WITH_ASYNCIO = ("-p", "no:anyio", "-o", "asyncio_default_fixture_loop_scope=function")
WITH_ANYIO = ("-p", "no:asyncio")
ALONE = ("-p", "no:asyncio", "-p", "no:anyio")
ANYIO = "@pytest.fixture\ndef anyio_backend():\n    return 'asyncio'\n"


def run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess("-W", "error", "-p", "no:cacheprovider", *options)


@pytest.mark.parametrize("runner", ["asyncio", "anyio"])
def test_async_tests_get_a_sandbox_from_whatever_runs_them(
    pytester: pytest.Pytester, server: str | None, runner: str
) -> None:
    scheme = "sqlite" if server is None else "postgresql"
    tests = ASYNC_TESTS.format(runner=runner, scheme=scheme) + (ANYIO if runner == "anyio" else "")
    pytester.makepyfile(test_jobs=tests)
    pytester.makepyfile(conftest=APP)
    options = WITH_ANYIO if runner == "anyio" else WITH_ASYNCIO
    run(
        pytester, *options, *([] if server is None else ["--holdfast-url", server])
    ).assert_outcomes(passed=3)


def test_plain_tests_need_no_other_plugin(pytester: pytest.Pytester, server: str | None) -> None:
    scheme = "sqlite" if server is None else "postgresql"
    pytester.makepyfile(test_jobs=SYNC_TESTS.format(scheme=scheme))
    pytester.makepyfile(conftest=APP)
    pytester.makeini(f"[pytest]\nholdfast_url = {server or ''}")
    run(pytester, *ALONE).assert_outcomes(passed=2)


def test_without_an_app_the_error_says_what_to_define(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(holdfast_sandbox): ...")
    result = run(pytester, *ALONE)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*in your conftest.py, define a fixture holdfast_app*"])


def test_runs_that_do_not_use_it_pay_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_it():
            loaded = [name for name in sys.modules if name.startswith(("holdfast", "asyncpg"))]
            assert sorted(loaded) == ["holdfast", "holdfast.testing", "holdfast.testing.plugin"]
        """
    )
    run(pytester, *ALONE).assert_outcomes(passed=1)


def test_the_fixtures_are_listed_with_what_they_give(pytester: pytest.Pytester) -> None:
    result = run(pytester, *ALONE, "--fixtures")
    result.stdout.fnmatch_lines(["holdfast_sandbox*", "*A sandbox of `holdfast_app` for one test*"])
