"""Style as a test: what no linter says about this project."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from holdfast.domain import limits

ROOT = Path(__file__).parent.parent
FUNCTION_LINES_MAX = 60
MODULE_LINES_MAX = 500
UNREAD = {".git", "__pycache__", "build", "dist", "node_modules"}
SQL_WORDS = re.compile(r"\b(SELECT|INSERT INTO|UPDATE|DELETE FROM|CREATE|ALTER|NOTIFY|LISTEN)\b")


def files(folder: str = ".", name: str = "*") -> Iterator[Path]:
    for path in sorted((ROOT / folder).rglob(name)):
        parts = path.relative_to(ROOT).parts
        hidden = any(part.startswith(".") and part != ".ci" for part in parts[:-1])
        vendored = any(part in UNREAD or part.endswith(".egg-info") for part in parts)
        if path.is_file() and not hidden and not vendored:
            yield path


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


def test_tests_wait_on_signals_and_never_sleep() -> None:
    assert lines_with(r"\bsleep\(", "tests", "*.py") == []


def test_tests_use_real_parts_and_no_mocks() -> None:
    assert (
        lines_with(r"unittest\.mock|Magic(M)ock|patch\.(setattr|object)\b", "tests", "*.py") == []
    )


def test_nothing_is_left_for_later() -> None:
    assert lines_with(r"\b(TO)(DO)\b|\b(FIX)(ME)\b|\b(X)(XX)\b") == []


def test_no_machine_and_no_registry_is_named() -> None:
    paths = r"/(root|work|farm)/|/home/(?!user/)\w+/"
    hosts = r"(?i)(py)(pi)\.(org|io)|(files)\.(python)|(npm)(js)\.(org|com)|(deb)\.(deb)"
    assert lines_with(paths) == []
    assert lines_with(hosts) == []


def test_functions_fit_on_a_screen() -> None:
    long = [
        f"{place(path, node.lineno)} {node.name}"
        for path, tree in trees("src")
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or node.lineno) - node.lineno >= FUNCTION_LINES_MAX
    ]
    assert long == []


def test_modules_fit_in_a_sitting() -> None:
    counts = {str(path): len(text.splitlines()) for path, text in texts("src", "*.py")}
    assert {path: count for path, count in counts.items() if count > MODULE_LINES_MAX} == {}


def test_only_the_seam_reads_a_clock() -> None:
    clocks = re.compile(r"(^|\.)(datetime\.(now|utcnow|today)|date\.today|time\.(time|time_ns))$")
    readers = [
        f"{place(path, node.lineno)} {called(node)}"
        for path, tree in trees("src")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and clocks.search(called(node)) and path.name != "seam.py"
    ]
    assert readers == []


def test_stores_build_no_sql_from_pieces() -> None:
    def built(node: ast.AST) -> bool:
        joined = isinstance(node, ast.JoinedStr) and any(
            isinstance(part, ast.FormattedValue) for part in node.values
        )
        added = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mod)
        formatted = isinstance(node, ast.Call) and called(node).endswith(".format")
        return joined or added or formatted

    def has_sql(node: ast.AST) -> bool:
        return any(
            isinstance(part, ast.Constant)
            and isinstance(part.value, str)
            and SQL_WORDS.search(part.value)
            for part in ast.walk(node)
        )

    found = [
        f"{place(path, node.lineno)} {ast.unparse(node)[:80]}"
        for folder in ("src/holdfast/stores", "src/holdfast/wakeups")
        for path, tree in trees(folder)
        for node in ast.walk(tree)
        if isinstance(node, ast.expr) and built(node) and has_sql(node)
    ]
    assert found == []


def test_only_the_command_line_prints() -> None:
    printers = [
        place(path, node.lineno)
        for path, tree in trees("src")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and called(node) == "print" and "cli" not in path.parts
    ]
    assert printers == []


def test_every_limit_is_documented_with_its_value() -> None:
    page = (ROOT / "docs/reference/limits.md").read_text(encoding="utf-8")
    documented = dict(re.findall(r"^\| `(\w+)` \| ([-\d,]+) \|", page, re.MULTILINE))
    named = {name: f"{value:,}" for name, value in vars(limits).items() if name.isupper()}
    assert documented == named


def test_locks_pin_every_package_by_hash_and_name_no_address() -> None:
    for path, text in texts("requirements", "*.txt"):
        entries = re.split(r"\n(?=\S)", re.sub(r"(?m)^\s*#.*\n?", "", text).strip())
        loose = [entry for entry in entries if "==" not in entry or "--hash=sha256:" not in entry]
        assert loose == [], path.name
        assert re.findall(r"://|^-", text, re.MULTILINE) == [], path.name


def test_the_full_lock_holds_what_the_runtime_lock_holds() -> None:
    def pins(name: str) -> set[str]:
        text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
        return set(re.findall(r"^(\S+==\S+)", text, re.MULTILINE))

    assert pins("runtime.txt") <= pins("dev.txt")
