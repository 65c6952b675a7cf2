"""How long ended jobs are kept, by queue and state."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from holdfast.domain.errors import ConfigurationError
from holdfast.domain.limits import HISTORY_KEY_DAYS_MAX, HISTORY_RULES_MAX, HISTORY_SECONDS_MAX
from holdfast.domain.states import ENDED, State

ANY = "*"
DAY_SECONDS: Final = 86400.0
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_AGE = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")


class Rule(NamedTuple):
    """`*` stands for any queue, or any state."""

    queue: str
    state: str
    kept_seconds: float


class Retention(NamedTuple):
    """The first rule that matches decides; the most specific rules come first. A job with an
    idempotency key is kept at least as long as its key."""

    kept_seconds: float
    rules: Sequence[Rule] = ()
    keys_kept_seconds: float = 0.0

    def kept_seconds_of(self, queue: str, state: State) -> float:
        for rule in self.rules:
            if rule.queue in (ANY, queue) and rule.state in (ANY, state):
                return rule.kept_seconds
        return self.kept_seconds

    @property
    def longest_seconds(self) -> float:
        return max([self.kept_seconds, *(rule.kept_seconds for rule in self.rules)])

    def possible_seconds(self) -> list[float]:
        """All lengths of time that jobs may be kept, to create partitions ahead."""
        by_rule = {self.kept_seconds, *(rule.kept_seconds for rule in self.rules)}
        by_key: set[float] = set()
        if min(by_rule) < self.keys_kept_seconds:
            days = min(int(self.keys_kept_seconds / DAY_SECONDS), HISTORY_KEY_DAYS_MAX)
            by_key = {number * DAY_SECONDS for number in range(days + 1)}
        return sorted(by_rule | by_key)


A_WEEK: Final = Retention(7 * DAY_SECONDS)


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Parse `*:dead=90d, images:succeeded=12h, mail:*=1d`; the most specific rule comes first."""
    rules = [_parse_rule(part.strip()) for part in text.split(",") if part.strip()]
    if len(rules) > HISTORY_RULES_MAX:
        raise ConfigurationError(
            f"{len(rules)} history rules exceed the maximum of {HISTORY_RULES_MAX}"
        )
    if len({rule[:2] for rule in rules}) < len(rules):
        raise ConfigurationError(f"two rules of {text!r} have the same queue and state")
    return tuple(sorted(rules, key=lambda rule: (rule.queue == ANY, rule.state == ANY)))


def _parse_rule(text: str) -> Rule:
    target, equals, age = text.rpartition("=")
    queue, colon, state = target.strip().rpartition(":")
    match = _AGE.fullmatch(age.strip())
    known = {ANY, *(str(end) for end in ENDED)}
    if not (equals and colon and queue and match and state in known):
        raise ConfigurationError(
            f"{text!r} is not a rule like 'images:succeeded=12h' or '*:dead=90d'; the state is one"
            f" of {', '.join(sorted(known))}, the age a number with s, m, h or d"
        )
    seconds = float(match[1]) * _UNITS[match[2]]
    if seconds > HISTORY_SECONDS_MAX:
        raise ConfigurationError(f"{text!r} keeps history longer than ten years")
    return Rule(queue, state, seconds)
