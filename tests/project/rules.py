"""What our rules mean: waits for a fixed time, patched attributes and SQL made of pieces, found in
syntax trees by whatever name they go.

Each finder yields the line of what it found, and the function around it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple, TypeGuard

CLOCKS = {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter"}
TIMERS = {"call_later", "call_at", "Timer"}
WAITS = {"wait_until", "poll", "poll_blocking"}  # for a condition
FRESH = {"Event", "Condition", "Future", "create_future", "Semaphore"}
SLEEPS_IN_TEXT = re.compile(r"\bpg_sleep\(|\b(time|asyncio)\.sleep\(|\bsleep \d|^sleep$")
SQL_WORDS = re.compile(
    r"\b(SELECT|INSERT INTO|UPDATE|DELETE FROM|CREATE|ALTER|DROP|NOTIFY|LISTEN|BEGIN|SET LOCAL)\b"
)
SHORT_SECONDS = 60
BUILDERS = {"format", "join", "replace", "sub"}


class Found(NamedTuple):
    line: int
    function: str
    text: str


def walk(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Every node, with the qualified name of the function or class that it is in."""

    def inside(node: ast.AST, name: str) -> Iterator[tuple[ast.AST, str]]:
        for child in ast.iter_child_nodes(node):
            yield child, name
            named = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            deeper = f"{name}.{child.name}".lstrip(".") if named else name  # type: ignore[attr-defined]
            yield from inside(child, deeper)

    return inside(tree, "")


def last(node: ast.expr) -> str:
    """The last part of a dotted name: `sleep` of `asyncio.sleep`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in (0, 0.0)


def is_fresh(node: ast.AST) -> bool:
    """Is it created in this expression, so that nobody else can set it?"""
    return any(isinstance(each, ast.Call) and last(each.func) in FRESH for each in ast.walk(node))


def imported_sleeps(tree: ast.Module) -> set[str]:
    """The names that `sleep` has in this module."""
    return {"sleep"} | {
        alias.asname
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name == "sleep" and alias.asname
    }


def sleeps(tree: ast.Module, helpers: frozenset[str] = frozenset()) -> Iterator[Found]:
    """Waits that end with the time, not with a condition. `helpers` hide one behind their name."""
    names = imported_sleeps(tree) | helpers
    for node, function in walk(tree):
        if (
            (isinstance(node, ast.Call) and _sleeps(node, names))
            or (isinstance(node, ast.With | ast.AsyncWith) and _expects_to_run_out(node))
            or (_says_sleep(node) and not _is_docstring(node, tree))
        ):
            yield Found(node.lineno, function, ast.unparse(node)[:80])


def _sleeps(call: ast.Call, names: set[str] | frozenset[str]) -> bool:
    name = last(call.func)
    times = [*call.args, *(each.value for each in call.keywords if each.arg != "return_when")]
    if name in names:
        return bool(times) and not is_zero(times[0])
    if name in TIMERS:
        return not is_zero(call.args[0])
    if name in WAITS:
        return any(_reads_clock(each) for each in call.args[:1])
    if name == "select":
        return len(call.args) == 4 and all(
            isinstance(each, ast.List) and not each.elts for each in call.args[:3]
        )
    if name == "wait" and isinstance(call.func, ast.Attribute):
        if is_fresh(call.func.value):
            return bool(times)
        timeout = [each.value for each in call.keywords if each.arg == "timeout"]
        is_asyncio = ast.unparse(call.func.value) == "asyncio"
        return is_asyncio and bool(timeout) and not is_zero(timeout[0])
    return name == "wait_for" and is_fresh(call.args[0])


def short_waits(tree: ast.Module) -> Iterator[Found]:
    """Waits that give up after a number of seconds that may be too few on a busy machine."""
    for node, function in walk(tree):
        if isinstance(node, ast.Call) and any(map(_is_short, _patience(node))):
            yield Found(node.lineno, function, ast.unparse(node)[:80])


def _patience(call: ast.Call) -> list[ast.expr]:
    name = last(call.func)
    named = [each.value for each in call.keywords if each.arg == "timeout"]
    if name == "wait_for":
        return [*call.args[1:], *named]
    is_wait = name in ("wait", "result", "exception", "join", "timeout")
    return [*call.args, *named] if is_wait else named


def _is_short(seconds: ast.expr) -> bool:
    # Less than a second is no patience: the test wants it to run out.
    return (
        isinstance(seconds, ast.Constant)
        and isinstance(seconds.value, int | float)
        and 1 <= seconds.value < SHORT_SECONDS
    )


def _reads_clock(condition: ast.expr) -> bool:
    return any(
        isinstance(node, ast.Call) and last(node.func) in CLOCKS for node in ast.walk(condition)
    )


def _expects_to_run_out(block: ast.With | ast.AsyncWith) -> bool:
    """A block that swallows the timeout of the wait inside."""
    expected = any(
        isinstance(each.context_expr, ast.Call)
        and last(each.context_expr.func) in ("suppress", "raises")
        and any(last(arg) == "TimeoutError" for arg in each.context_expr.args)
        for each in block.items
    )
    return expected and any(
        isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("asyncio.wait_for", "asyncio.timeout")
        for node in ast.walk(block)
    )


def _says_sleep(node: ast.AST) -> TypeGuard[ast.Constant]:
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and SLEEPS_IN_TEXT.search(node.value) is not None
    )


def _is_docstring(node: ast.Constant, tree: ast.Module) -> bool:
    return any(isinstance(each, ast.Expr) and each.value is node for each in ast.walk(tree))


def hiding_sleeps(tree: ast.Module) -> Iterator[str]:
    """The functions that sleep for as long as a parameter says: to call one is to sleep."""
    names = imported_sleeps(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = {each.arg for each in [*node.args.args, *node.args.kwonlyargs]}
            for call in ast.walk(node):
                if isinstance(call, ast.Call) and _sleeps(call, names):
                    # The other arguments of a timer are what it calls.
                    args = call.args[:1] if last(call.func) in TIMERS else call.args
                    arguments = [*args, *(each.value for each in call.keywords)]
                    used = {
                        part.id
                        for each in arguments
                        for part in ast.walk(each)
                        if isinstance(part, ast.Name)
                    }
                    if used & given:
                        yield node.name


def patches(tree: ast.Module, ours: set[str]) -> Iterator[Found]:
    """Attributes that are replaced from outside: private ones, and those named like functions of
    ours; all of our modules; `setattr` by any spelling; anything of unittest.mock."""
    modules = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("holdfast")
        for alias in node.names
    }
    for node, function in walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            private = node.attr.startswith("_") and not node.attr.endswith("__")
            of_module = isinstance(node.value, ast.Name) and node.value.id in modules
            if not own and (private or of_module or node.attr in ours):
                yield Found(node.lineno, function, ast.unparse(node))
        elif isinstance(node, ast.Call) and last(node.func) in ("setattr", "__setattr__"):
            yield Found(node.lineno, function, ast.unparse(node)[:80])
        elif isinstance(node, ast.Import | ast.ImportFrom) and "mock" in ast.unparse(node):
            yield Found(node.lineno, function, ast.unparse(node))


def functions(tree: ast.Module) -> set[str]:
    """The names of all functions and methods of a module."""
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def fields(tree: ast.Module) -> set[str]:
    """The names of data attributes in the classes of a module. Tests may set those."""
    assigned = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
    declared = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for each in node.body
        if isinstance(each, ast.AnnAssign | ast.Assign)
        for target in (each.targets if isinstance(each, ast.Assign) else [each.target])
        if isinstance(target, ast.Name)
    }
    return assigned | declared


def built_sql(tree: ast.Module) -> Iterator[Found]:
    """SQL that is put together from strings, by any means, wherever its text comes from."""
    known = {
        (function, target.id)
        for node, function in walk(tree)
        if isinstance(node, ast.Assign) and _has_sql(node.value, {"sql"})
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node, function in walk(tree):
        if isinstance(node, ast.expr) and _is_built(node):
            names = {"sql"} | {name for place, name in known if place == function}
            if _has_sql(node, names):
                yield Found(node.lineno, function, ast.unparse(node)[:80])


def _is_built(node: ast.expr) -> bool:
    if isinstance(node, ast.JoinedStr):
        return any(isinstance(part, ast.FormattedValue) for part in node.values)
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Add | ast.Mod)
    return isinstance(node, ast.Call) and last(node.func) in BUILDERS


def _has_sql(node: ast.expr, names: set[str]) -> bool:
    return any(
        (
            isinstance(part, ast.Constant)
            and isinstance(part.value, str)
            and SQL_WORDS.search(part.value)
        )
        or (isinstance(part, ast.Call) and last(part.func) == "read_sql")
        or (isinstance(part, ast.Attribute | ast.Name) and last(part) in names)
        for part in ast.walk(node)
    )
