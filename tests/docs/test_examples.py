"""The examples in the README and the docs, run.

The blocks of a page run one after the other in one namespace, in an empty directory, as one file
would. `await` may stand outside of functions only on a page that says `python -m asyncio` before.
Test functions in a block are called as a test runner would. A block that can't run
says so, with a reason: ```python no-run: needs a mail server

A block with a path, as ```python shop/pages.py, is a file in that directory, and its first
folder can be imported.

A page that asks for SHOP_DATABASE_URL gets a migrated PostgreSQL database, which is Django's, too.
A page that uses sandbox(hf) runs once more, with its sandboxes on PostgreSQL.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any
from xml.etree import ElementTree

import pytest

from holdfast import Holdfast
from tests.support import django_settings
from tests.support.forks import ROOT
from tests.support.postgres import Databases

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```python *(?P<mark>[^\n]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
REPL = "`python -m asyncio`"
FILE_MARK = re.compile(r"\w[\w/]*\.py")
LINK = re.compile(r"\]\(([^)#:\s]*)(?:#([^)\s]+))?\)")
FILE = re.compile(r"^```\w+ (?P<path>\w[\w/]*\.\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
IN_SANDBOX = "sandbox(hf)"


def relative(page: Path) -> str:
    return str(page.relative_to(ROOT))


def write_files(page: Path, folder: Path) -> list[str]:
    """Write the page's files; answer the packages that they make."""
    packages = set()
    for match in FILE.finditer(page.read_text(encoding="utf-8")):
        path = folder / match["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(match["text"], encoding="utf-8")
        packages.add(match["path"].partition("/")[0])
    for package in packages:
        (folder / package / "__init__.py").touch()
    return sorted(packages)


def blocks(page: Path, text: str) -> Iterator[tuple[str, CodeType]]:
    """The marks and the code of a page's Python blocks, compiled to keep the page's lines."""
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("code"))
        is_for_repl = REPL in text[: match.start()]
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT if is_for_repl else 0
        source = "\n" * line + match["code"]
        name = str(page.relative_to(ROOT))
        yield match["mark"], compile(source, name, "exec", flags, dont_inherit=True)


def run(code: CodeType, namespace: dict[str, Any], runner: asyncio.Runner) -> None:
    known = set(namespace)
    _finish(eval(code, namespace), runner)
    for name in [name for name in namespace if name not in known and name.startswith("test_")]:
        _finish(namespace[name](), runner)


def _finish(value: Any, runner: asyncio.Runner) -> None:
    if inspect.iscoroutine(value):
        runner.run(value)


@pytest.fixture
def shop_url(
    postgres_databases: Callable[[str], Databases], migrated_template: Callable[[str], str]
) -> Iterator[str]:
    databases = postgres_databases("pg15")
    name = databases.create(migrated_template("pg15"))
    url = databases.url(name)
    with django_settings.database(url, "default"):
        yield url
    databases.drop(name)


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_the_examples_of_a_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_DATABASE_URL", raising=False)
    text = page.read_text(encoding="utf-8")
    if "SHOP_DATABASE_URL" in text:
        monkeypatch.setenv("SHOP_DATABASE_URL", request.getfixturevalue("shop_url"))
    if packages := write_files(page, tmp_path):
        monkeypatch.syspath_prepend(tmp_path)
        for package in packages:
            monkeypatch.delitem(sys.modules, package, raising=False)
    run_page(page, text)


@pytest.mark.parametrize(
    "page", [each for each in PAGES if IN_SANDBOX in each.read_text(encoding="utf-8")], ids=relative
)
def test_what_runs_in_a_sandbox_runs_on_postgresql_too(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shop_url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHOP_DATABASE_URL", shop_url)
    text = page.read_text(encoding="utf-8")
    run_page(page, text.replace(IN_SANDBOX, f"sandbox(hf, {shop_url!r})"))


def run_page(page: Path, text: str) -> None:
    namespace: dict[str, Any] = {"__name__": page.stem}
    apps: set[Holdfast] = set()
    with asyncio.Runner() as runner:
        for mark, code in blocks(page, text):
            if not mark.startswith("no-run: ") and not FILE_MARK.fullmatch(mark):
                assert mark == "", f"{page.name}: a block is marked {mark!r}"
                run(code, namespace, runner)
                apps.update(app for app in namespace.values() if isinstance(app, Holdfast))
        _close_all(apps, runner)


def _close_all(apps: Iterable[Holdfast], runner: asyncio.Runner) -> None:
    """Close what examples leave open for the sake of shortness."""
    for app in apps:
        app.close_sync()
        runner.run(app.close())


def test_links_inside_the_docs_lead_somewhere() -> None:
    broken = [
        f"{page.relative_to(ROOT)}: {target}#{heading}"
        for page in PAGES
        for target, heading in LINK.findall(page.read_text(encoding="utf-8"))
        if not _exists(page.parent / target if target else page, heading)
    ]
    assert broken == []


def _exists(path: Path, heading: str) -> bool:
    if not path.exists() or path.suffix != ".md" or not heading:
        return path.exists()
    titles = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return heading in {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in titles}


@pytest.mark.parametrize("picture", sorted((ROOT / "docs" / "pictures").glob("*.svg")), ids=str)
def test_a_picture_is_well_formed_and_loads_nothing(picture: Path) -> None:
    text = picture.read_text(encoding="utf-8")
    svg = ElementTree.fromstring(text)
    assert svg.tag == "{http://www.w3.org/2000/svg}svg"
    assert not re.search(
        r"href|@import|url\((?!#)|<script|https?://(?!www\.w3\.org/2000/svg)", text
    )


@pytest.mark.parametrize("name", ["dead", "top"])
def test_a_recording_shows_its_last_frame_where_nothing_moves(name: str) -> None:
    svg = ElementTree.parse(ROOT / "docs" / "pictures" / f"{name}.svg")
    frames = [group for group in svg.iter() if group.get("class", "").startswith("frame-")]
    assert len(frames) > 1
    assert [group for group in frames if group.get("visibility") != "hidden"] == frames[-1:]
    (style,) = svg.iter("{http://www.w3.org/2000/svg}style")
    assert re.fullmatch(
        r"@media \(prefers-reduced-motion: no-preference\) \{.*\}", style.text or ""
    )


def test_every_picture_of_a_page_exists_and_every_picture_is_shown() -> None:
    shown = {
        (page.parent / path).resolve()
        for page in PAGES
        for path in re.findall(r"!\[[^]]*\]\(([^)]+)\)", page.read_text(encoding="utf-8"))
    }
    assert shown
    assert all(path.exists() for path in shown)
    assert set((ROOT / "docs" / "pictures").iterdir()) <= shown
