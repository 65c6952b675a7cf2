"""Every regular expression of the source, how it is used, and texts that would make it slow."""

from __future__ import annotations

import ast
import re
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from pathlib import Path
from types import FrameType
from typing import Any

constants: Any = import_module("re._constants")
parser: Any = import_module("re._parser")
SOURCE = Path(__file__).parents[2] / "src"
CHARS = 5_000
GROWTH = 4
GROWTH_MAX = 10.0  # four times the text: 4 if linear, 16 if quadratic
UNREMARKABLE_SECONDS = 0.005  # a linear match of so few characters takes a tenth of this
BOUNDED_SECONDS_MAX = 0.2
CPU_SECONDS_MAX = 0.5

USES: dict[str, Callable[[re.Pattern[Any], Any], object]] = {
    "match": lambda pattern, text: pattern.match(text),
    "fullmatch": lambda pattern, text: pattern.fullmatch(text),
    "search": lambda pattern, text: pattern.search(text),
    "sub": lambda pattern, text: pattern.sub("", text),
    "split": lambda pattern, text: pattern.split(text),
    "findall": lambda pattern, text: pattern.findall(text),
    "finditer": lambda pattern, text: list(pattern.finditer(text)),
}
REPEATS = (constants.MAX_REPEAT, constants.MIN_REPEAT, constants.POSSESSIVE_REPEAT)
CATEGORIES = {
    constants.CATEGORY_DIGIT: "0",
    constants.CATEGORY_SPACE: " ",
    constants.CATEGORY_WORD: "a",
    constants.CATEGORY_NOT_SPACE: "a",
}
ANYWHERE = ("search", "sub")
COMMON = (*"a0f'\"\\=:/@ \n.,-*$#&", "://", "a ", "a:", "'a ", "a.", "0,", "password='", "pwd=")


@dataclass(frozen=True)
class Found:
    """A pattern, the place it is written at, and the methods it is used by."""

    where: str
    pattern: re.Pattern[Any]
    uses: tuple[str, ...]

    def texts(self) -> Iterator[tuple[str, str, str]]:
        """The start, the part to repeat and the end of texts that nearly match."""
        parsed = parser.parse(self.pattern.pattern, self.pattern.flags)
        tries = dict.fromkeys([("", unit) for unit in COMMON])
        for start, unit in _repeated(parsed, ""):
            tries |= {(start, unit): None, ("", start + unit): None, (start, unit + " "): None}
            tries |= {(start, unit + start): None, ("", start): None}
        for (start, unit), end in product(tries, ("", "\0", "\n\0")):
            if unit:
                yield start, unit, end


def _repeated(parsed: Any, start: str) -> Iterator[tuple[str, str]]:
    """What a pattern repeats without a limit, with a text that leads there."""
    for operation, argument in parsed:
        if operation in REPEATS:
            least, most, inner = argument
            if most is constants.MAXREPEAT:
                yield from ((start, unit) for unit in _characters(inner))
            yield from _repeated(inner, start)
            start += _example(inner) * least
            continue
        for inner in _inner(operation, argument):
            yield from _repeated(inner, start)
        start += _example([(operation, argument)])


def _inner(operation: Any, argument: Any) -> list[Any]:
    """The patterns that this part of a pattern consists of; one of them is enough."""
    if operation is constants.BRANCH:
        return list(argument[1])
    if operation in (constants.SUBPATTERN, constants.ASSERT):
        return [argument[-1]]
    return [argument] if operation is constants.ATOMIC_GROUP else []


def _example(parsed: Any) -> str:
    """A text that the pattern matches, or nearly."""
    text = ""
    for operation, argument in parsed:
        if operation is constants.LITERAL:
            text += chr(argument)
        elif operation in (constants.IN, constants.ANY, constants.NOT_LITERAL):
            text += _characters([(operation, argument)])[0]
        elif operation in REPEATS:
            text += _example(argument[2]) * argument[0]
        elif operation is not constants.ASSERT and (inner := _inner(operation, argument)):
            text += _example(inner[0])
    return text


def _characters(parsed: Any) -> list[str]:
    """Some characters of a class, or an example of anything else."""
    if len(parsed) != 1 or parsed[0][0] not in (constants.IN, constants.ANY, constants.NOT_LITERAL):
        return [_example(parsed)]
    operation, members = parsed[0]
    if operation is constants.ANY:
        return ["a", " "]
    if operation is constants.NOT_LITERAL:
        return [each for each in ("a", " ") if ord(each) != members]
    negated = members[0][0] is constants.NEGATE
    named = [
        chr(value if kind is constants.LITERAL else value[0])
        for kind, value in members
        if kind in (constants.LITERAL, constants.RANGE)
    ]
    named += [
        CATEGORIES[value]
        for kind, value in members
        if kind is constants.CATEGORY and value in CATEGORIES
    ]
    others = [each for each in "a0 .:/-" if each not in named]
    return (others if negated else named)[:4] or ["a"]


def every_pattern() -> list[Found]:
    """All patterns of the source: values of names in their modules, or plain strings."""
    trees = {path: ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}
    uses = _uses(trees.values())
    return [found for path, tree in trees.items() for found in _patterns(path, tree, uses)]


def _uses(trees: Any) -> dict[str, tuple[str, ...]]:
    """The methods that are called on names, in any module: NAME.sub(...)."""
    uses: dict[str, set[str]] = {}
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in USES:
                name = ast.unparse(node.value).rpartition(".")[2]
                uses.setdefault(name, set()).add(node.attr)
    return {name: tuple(sorted(methods)) for name, methods in uses.items()}


def _patterns(path: Path, tree: ast.Module, uses: dict[str, tuple[str, ...]]) -> Iterator[Found]:
    module = ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    named = {
        id(node.value): ast.unparse(
            node.targets[0] if isinstance(node, ast.Assign) else node.target
        )
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        where = f"{module}:{node.lineno}"
        if called == "re.compile" and id(node) in named:
            name = named[id(node)]
            pattern = getattr(import_module(module), name)
            yield Found(f"{module}.{name}", pattern, uses.get(name, ANYWHERE))
        elif called.startswith("re.") and called.removeprefix("re.") in {*USES, "compile"}:
            method = called.removeprefix("re.")
            methods = ANYWHERE if method == "compile" else (method,)
            yield Found(where, _compiled(module, node.args[0]), methods)
        for keyword in node.keywords:
            if keyword.arg == "pattern":
                yield Found(where, _compiled(module, keyword.value), ("search",))


def _compiled(module: str, written: ast.expr) -> re.Pattern[Any]:
    if isinstance(written, ast.Name):
        return re.compile(getattr(import_module(module), written.id))
    return re.compile(ast.literal_eval(written))


class TooLong(Exception):
    """More than its share of this process's time."""


def slow_text(found: Found, chars: int = CHARS, *, grows: bool = True) -> str | None:
    """A text for which the work grows faster than it does; or, if it does not grow, one for which
    there is too much of it."""
    for start, unit, end in found.texts():
        for method in found.uses:
            use = USES[method]

            def took(times: int, use: Any = use, parts: Any = (start, unit, end)) -> float:
                start, unit, end = parts
                text = start + unit * (chars * times // len(unit)) + end
                whole = text if isinstance(found.pattern.pattern, str) else text.encode()
                return cpu_seconds(lambda: use(found.pattern, whole))

            if not (_is_linear(took) if grows else took(1) < BOUNDED_SECONDS_MAX):
                return f"{method} of {start!r} + {unit!r} * n + {end!r}"
    return None


def _is_linear(took: Callable[[int], float]) -> bool:
    try:
        if took(1) < UNREMARKABLE_SECONDS:
            return True
        # The least of several: what else the machine does only ever adds to it.
        once = min(took(1) for _ in range(3))
        longer = min(took(GROWTH) for _ in range(3))
    except TooLong:
        return False
    return longer < max(once, UNREMARKABLE_SECONDS) * GROWTH_MAX


def cpu_seconds(work: Callable[[], object]) -> float:
    """The processor's time, in which a match that does not come to an end is interrupted."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise TooLong

    before = signal.signal(signal.SIGVTALRM, interrupt)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_SECONDS_MAX)
    started = time.thread_time()
    try:
        work()
        return time.thread_time() - started
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
