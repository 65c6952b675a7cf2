"""The pytest plugin: a sandbox as a fixture.

Every run of pytest in an environment with Holdfast imports this module, so it imports only what
pytest has imported already.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.testing.sandboxes import Sandbox

URL = "holdfast_url"


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "PostgreSQL server on which holdfast_sandbox makes its databases (default: SQLite files)"
    parser.getgroup("holdfast").addoption("--holdfast-url", metavar="URL", dest=URL, help=text)
    parser.addini(URL, text)


@pytest.fixture
def holdfast_app() -> Holdfast:
    """The Holdfast object of your application. Override this fixture in your conftest.py."""
    pytest.fail(
        "holdfast_sandbox needs your Holdfast object: in your conftest.py, define a fixture"
        " holdfast_app that returns it",
        pytrace=False,
    )


@pytest.fixture
def holdfast_sandbox(request: pytest.FixtureRequest, holdfast_app: Holdfast) -> Iterator[Sandbox]:
    """A sandbox of `holdfast_app` for one test, async or not.

    It runs on SQLite, or with `--holdfast-url` (or `holdfast_url` in the configuration file) on a
    PostgreSQL server.
    """
    from holdfast.testing.sandboxes import sandbox_sync

    url = request.config.getoption(URL) or request.config.getini(URL)
    with sandbox_sync(holdfast_app, str(url) or None) as sandbox:
        yield sandbox
