"""`holdfast top` shows what is there in any terminal, and leaves the terminal as it was."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from holdfast import Holdfast, Permanent, State
from holdfast.cli.top.keys import names
from holdfast.cli.top.screen import Place, Size, draw, per_second, short, took
from holdfast.cli.top.view import Tab, View, Wish
from holdfast.domain.breakers import BreakerStatus
from holdfast.domain.job import Count, Job
from holdfast.domain.messengers import MessengerStatus
from holdfast.domain.overview import Ended, Meter, Overview, latency, latency_by_queue
from holdfast.domain.queues import QueueStatus
from holdfast.domain.workers import WorkerStatus
from tests.support.command import command
from tests.support.postgres import Server
from tests.support.terminal import Terminal

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
PLACE = Place("sqlite:///jobs.db", 2.0)
QUEUES_OF_A_TOWN = [QueueStatus(name=f"town-{number}", ready=1) for number in range(30)]


def worker(number: int, *, lost: bool = False) -> WorkerStatus:
    return WorkerStatus(
        id=f"alpha:{4000 + number}:abcd",
        host="alpha",
        pid=4000 + number,
        version="1.2.3",
        queues={"mail": 5, "*": None},
        names=("send",),
        concurrency=20,
        running=7,
        full_queues=(),
        suspects_only=False,
        lease_seconds=30.0,
        started_at=NOW - timedelta(hours=2),
        seen_at=NOW - timedelta(seconds=3),
        unseen_seconds=3.0,
        lost=lost,
    )


def failure(text: str = "no such address 17\nat line 3") -> Job:
    return Job(
        id=UUID(int=17),
        name="send",
        state=State.DEAD,
        queue="mail",
        priority=0,
        arguments={},
        max_attempts=5,
        run_at=NOW,
        created_at=NOW,
        finished_at=NOW - timedelta(minutes=5),
        error_code="BAD_ADDRESS",
        error_text=text,
    )


def overview(**changes: object) -> Overview:
    newest = [Ended("mail", 0.25, 1.5)]
    values: dict[str, object] = {
        "now": NOW,
        "queues": [
            QueueStatus(name="images", ready=2, running=3, running_max=4),
            QueueStatus(
                name="mail",
                ready=123_456,
                scheduled=12,
                parked=9,
                oldest_ready_seconds=75.0,
                paused_at=NOW,
                paused_by="ann",
            ),
        ],
        "workers": [worker(1), worker(2, lost=True)],
        "breakers": [],
        "ended": [],
        "latency": latency(newest),
        "latency_by_queue": latency_by_queue(newest),
        "failures": [failure()],
    }
    return Overview(**{**values, **changes})  # type: ignore[arg-type]


def lines(
    view: View | None = None,
    seen: Overview | None = None,
    *,
    meter: Meter | None = None,
    place: Place = PLACE,
    columns: int = 80,
    rows: int = 24,
) -> list[str]:
    paper = Console(width=columns, height=rows, color_system=None)
    screen = draw(view or View(), seen or overview(), meter or Meter(), place, Size(columns, rows))
    with paper.capture() as captured:
        paper.print(screen, end="")
    return captured.get().rstrip("\n").split("\n")


def line_with(found: list[str], word: str) -> str:
    (line,) = [line for line in found if word in line]
    return line


def test_the_queues_view_tells_what_waits_runs_and_is_paused() -> None:
    found = lines()
    assert "12:00:00 UTC, every 2 s" in found[0]
    assert "123k ready" in found[1]
    assert "1 worker" in found[1]
    assert line_with(found, "images").split() == ["images", "2", "0", "0", "3/4", "-", "-"]
    mail = " ".join(line_with(found, "paused").split())
    assert mail == "mail paused 123k 12 9 0 - - 1 min 250 ms 1.5 s"


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
@pytest.mark.parametrize("tab", list(Tab))
def test_what_the_store_can_not_tell_is_said_in_full_and_takes_no_more_lines(
    columns: int, tab: Tab
) -> None:
    untold = "this store (Plain) can't tell how long jobs took or which workers are running"
    seen = overview(untold=untold, workers=None)
    found = lines(View(tab=tab), seen, columns=columns)
    assert untold in " ".join(" ".join(found).split())
    assert len(found) == 24
    assert "no workers" not in " ".join(found)
    if columns >= 80:
        assert "- workers" in found[1]


@pytest.mark.parametrize("columns", [50, 80])
def test_a_single_look_shows_all_queues_whatever_else_it_says(columns: int) -> None:
    seen = overview(untold="this store can't tell " + "a lot " * 30, queues=QUEUES_OF_A_TOWN)
    paper = Console(width=columns, height=24, color_system=None)
    with paper.capture() as captured:
        paper.print(draw(View(), seen, Meter(), PLACE, Size(columns, 24), live=False))
    assert [f"town-{number}" in captured.get() for number in range(30)] == [True] * 30


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_rates_that_are_not_known_yet_are_no_zeros(columns: int) -> None:
    found = lines(columns=columns)
    assert found[1].startswith("-/s done  -/s failed (1 in 1 h)")
    assert " - " in line_with(found, "images")


def test_rates_of_the_last_minute_stand_beside_their_queues() -> None:
    meter = Meter()
    meter.read(NOW, [Count("mail", State.SUCCEEDED, 0)])
    counts = [Count("mail", State.SUCCEEDED, 2500), Count("mail", State.DEAD, 1)]
    meter.read(NOW + timedelta(seconds=2), counts)
    meter.read(NOW + timedelta(seconds=4), counts)
    found = lines(meter=meter)
    assert found[1].startswith("625/s done  0.2/s failed (1 in 1 h)  ")
    assert found[1].rstrip().endswith("█▁")
    assert "  625    0.2" in line_with(found, "paused")


def test_the_workers_view_tells_load_and_who_is_lost() -> None:
    found = lines(View(tab=Tab.WORKERS))
    assert "7/20" in line_with(found, "4001")
    assert "lost, 3 s ago" in line_with(found, "4002")


def test_the_failures_view_tells_the_first_line_of_the_error() -> None:
    found = lines(View(tab=Tab.FAILURES))
    assert "5 min ago" in line_with(found, "no such address 17")
    assert "at line 3" not in "".join(found)


def test_open_breakers_are_named_above_everything() -> None:
    values = {"failures": 5, "unparking": False, "times_opened": 1, "opened_at": NOW}
    probed = BreakerStatus(
        key="gateway",
        opened_by=None,
        opened_because="GW_5XX",
        next_probe_at=NOW + timedelta(seconds=4),
        parked=4321,
        **values,  # type: ignore[arg-type]
    )
    by_hand = BreakerStatus(
        key="printer",
        opened_by="ann",
        opened_because=None,
        next_probe_at=None,
        parked=0,
        **values,  # type: ignore[arg-type]
    )
    found = lines(seen=overview(breakers=[probed, by_hand]), columns=120)
    assert "gateway (open, next probe in 4 s, 4,321 parked)" in found[2]
    assert "printer (opened by ann, 0 parked)" in found[2]
    assert len(found) == 24


def test_each_messenger_is_told_of_whole_in_a_terminal_of_usual_width() -> None:
    live = MessengerStatus(
        name="rabbitmq",
        address="amqp://orders:***@broker-1.example.com:5672/orders",
        live=True,
        heard_seconds=4.0,
    )
    down = msgspec.structs.replace(
        live, live=False, heard_seconds=9.0, because="refused", fallback="polling every 1 s"
    )

    def told(*statuses: MessengerStatus) -> str:
        workers = [
            msgspec.structs.replace(worker(number), messengers=(status,))
            for number, status in enumerate(statuses)
        ]
        return line_with(lines(seen=overview(workers=workers), columns=80), "rabbitmq")

    assert "rabbitmq: live on 2 workers; last message 7 s ago" in told(live, live)
    expected = "rabbitmq: down on 1 of 2 workers; polling every 1 s; last message 7 s ago"
    assert expected in told(live, down)


def test_a_database_that_is_away_is_told_in_the_header() -> None:
    found = lines(place=Place("sqlite:///jobs.db", 2.0, "connection refused"))
    assert found[0].endswith("can't read the database")
    assert found[3].rstrip() == "connection refused"
    assert "images" in "".join(found)


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_names_are_seen_in_a_narrow_terminal(columns: int) -> None:
    assert "images" in "".join(lines(columns=columns))
    assert "alpha:4" in "".join(lines(View(tab=Tab.WORKERS), columns=columns))


@given(
    columns=st.integers(20, 200),
    rows=st.integers(8, 60),
    tab=st.sampled_from(Tab),
    queues=st.integers(0, 80),
    row=st.integers(0, 100),
    help=st.booleans(),
)
def test_the_screen_is_never_larger_than_the_terminal_and_shows_the_chosen_row(
    columns: int, rows: int, tab: Tab, queues: int, row: int, help: bool
) -> None:
    seen = overview(
        queues=[QueueStatus(name=f"queue-{number:03}", ready=number) for number in range(queues)]
    )
    view = View(tab=tab, row=row, help=help)
    view = view.bounded(len(view.rows(seen, Meter())))
    found = lines(view, seen, columns=columns, rows=rows)
    assert len(found) <= rows
    assert all(len(line) <= columns for line in found)
    if tab is Tab.QUEUES and queues and not help and columns >= 80:
        assert f"queue-{view.row:03}" in "".join(found)


def test_what_jobs_carry_can_not_move_the_cursor() -> None:
    nasty = "\x1b[2J\x1b]0;title\x07 \r\n"
    seen = overview(queues=[QueueStatus(name=nasty)], failures=[failure(nasty)])
    for tab in Tab:
        assert "\x1b" not in "".join(lines(View(tab=tab), seen))


@given(st.integers(0, 10**12))
def test_numbers_take_at_most_six_characters(number: int) -> None:
    assert len(short(min(number, 999_499_999))) <= 6
    assert len(per_second(number / 1000)) <= 7


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(-1.0, "<1 ms"), (0.0004, "<1 ms"), (0.0123, "12.3 ms"), (1.04, "1.0 s"), (75.0, "1 min")],
)
def test_durations_are_short(seconds: float, told: str) -> None:
    assert took(seconds) == told


def pressed(view: View, *keys: str) -> View:
    for key in keys:
        view, _ = view.press(key)
    return view


def test_keys_change_the_view() -> None:
    assert pressed(View(), "tab").tab is Tab.WORKERS
    assert pressed(View(), "tab", "tab", "tab").tab is Tab.QUEUES
    assert pressed(View(), "3").tab is Tab.FAILURES
    assert pressed(View(), "down", "j", "up").row == 1
    assert pressed(View(), "k").row == 0
    assert pressed(View(), "s").order == "ready"
    assert pressed(View(), "s", "s", "s", "s", "s").order == "name"
    assert pressed(View(), "space").frozen
    assert not pressed(View(), "space", "space").frozen
    assert pressed(View(), "?").help
    assert not pressed(View(), "?", "j").help
    assert View().press("q")[1] is Wish.QUIT


def test_a_filter_takes_every_key_until_enter_and_escape_clears_it() -> None:
    typed = pressed(View(row=3), "/", "m", "q", "backspace", "a", "space")
    assert (typed.filter, typed.typing, typed.row) == ("ma ", True, 0)
    kept = pressed(typed, "enter")
    assert (kept.filter, kept.typing) == ("ma ", False)
    assert pressed(kept, "escape").filter == ""
    assert pressed(typed, "escape") == View()
    shown = View(filter="MAI").queues(overview(), Meter())
    assert [each.name for each in shown] == ["mail"]


def test_a_queue_is_paused_only_after_a_yes() -> None:
    assert View().press("p")[1] is Wish.ASK
    assert View(tab=Tab.WORKERS).press("p")[1] is None
    asked = View().asking("pause queue mail?")
    assert "pause queue mail? y/n" in "".join(lines(asked))
    assert asked.press("y") == (View(), Wish.CHANGE)
    assert asked.press("q") == (View(), None)


def test_queues_are_sorted_as_asked_for() -> None:
    def order(name: str) -> list[str]:
        return [each.name for each in View(order=name).queues(overview(), Meter())]

    assert order("name") == ["images", "mail"]
    assert order("ready") == order("oldest") == ["mail", "images"]


def test_a_failure_is_shown_and_left_again_where_it_was() -> None:
    view = View(tab=Tab.FAILURES, row=4)
    assert view.press("enter")[1] is Wish.SHOW_JOB
    assert View().press("enter")[1] is None
    shown = view.showing(["one", "two", "three"])
    assert "two" in "".join(lines(shown))
    assert pressed(shown, "down").row == 1
    assert pressed(shown, "down", "escape") == View(tab=Tab.FAILURES, row=4, rows_before=4)


def test_keys_of_a_terminal_are_named() -> None:
    assert names("q\x1b[A\x1bOB\x1b[5~\t \r\x7f\x1b") == [
        *("q", "up", "down", "page up", "tab", "space", "enter", "backspace", "escape"),
    ]
    assert names("\x1b[15~\x00é") == ["é"]


@pytest.fixture
async def url(local_url: str) -> str:
    async with Holdfast(local_url, sqlite_synchronous="NORMAL") as hf:

        @hf.job(queue="mail")
        async def send(number: int) -> None:
            raise Permanent(f"no such address {number}", code="BAD_ADDRESS")

        await send.enqueue(17)
        await hf.run_due()
        await send.options(queue="images").enqueue(18)
    return local_url


def shown(url: str, folder: Path, kind: str = "xterm-256color") -> Terminal:
    environment = {**os.environ, "HOLDFAST_DATABASE_URL": url}
    words = [sys.executable, "-m", "holdfast.cli.main", "top", "--interval", "0.2"]
    return Terminal(words, folder, environment, kind)


def test_top_is_driven_by_keys_and_leaves_the_terminal_as_it_was(url: str, tmp_path: Path) -> None:
    terminal = shown(url, tmp_path)
    terminal.read_until("images")
    assert terminal.modes() != terminal.modes_before
    terminal.write("3")
    terminal.read_until("no such address 17")
    terminal.write("\r")
    terminal.read_until("fingerprint")
    terminal.write("\x1b")
    terminal.read_until("space freeze")
    terminal.write("1/zzz\r")
    terminal.read_until("no matches")
    terminal.resize(30, 100)
    terminal.read_until(" " * 90)
    terminal.write("q")
    rest = terminal.read_all()
    assert terminal.modes() == terminal.modes_before
    assert "\x1b[?1049l" in rest
    assert "\x1b[?25h" in rest
    assert terminal.end() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_top_and_leaves_the_terminal_as_it_was(
    url: str, tmp_path: Path, number: signal.Signals
) -> None:
    terminal = shown(url, tmp_path)
    terminal.read_until("images")
    terminal.send(number)
    assert "\x1b[?1049l" in terminal.read_all()
    assert terminal.modes() == terminal.modes_before
    assert terminal.end() == 0


async def test_top_pauses_and_resumes_the_chosen_queue(url: str, tmp_path: Path) -> None:
    terminal = shown(url, tmp_path)
    terminal.read_until("images")
    terminal.write("jpy")
    terminal.read_until("mail paused")
    async with Holdfast(url) as hf:
        (paused,) = [each for each in await hf.queues.list() if each.paused]
        assert paused.name == "mail"
        assert "@" in (paused.paused_by or "")
        terminal.write("p")
        terminal.read_until("resume queue mail?")
        terminal.write("y")
        while any(each.paused for each in await hf.queues.list()):
            terminal.read_until("every 0.2 s")
        recorded = (await hf.audit.list()).entries
        assert [(each.action, each.target) for each in recorded] == [
            ("queue.resume", "mail"),
            ("queue.pause", "mail"),
        ]
    terminal.write("q")
    terminal.read_all()
    assert terminal.end() == 0


async def test_top_without_a_terminal_prints_one_screen(url: str) -> None:
    told = await command("top", url=url)
    assert "READY" in told
    assert "\x1b" not in told
    assert max(map(len, told.splitlines())) <= 80
    assert re.search(r"^images +1 ", told, re.MULTILINE)
    assert "every" not in told


def test_top_prints_one_screen_on_a_terminal_that_can_not_be_drawn_on(
    url: str, tmp_path: Path
) -> None:
    terminal = shown(url, tmp_path, "dumb")
    told = terminal.read_all()
    assert "images" in told
    assert "\x1b" not in told
    assert terminal.end() == 0


def test_top_tells_of_failures_that_were_before_it_looked(url: str, tmp_path: Path) -> None:
    terminal = shown(url, tmp_path)
    text = terminal.read_until("images")
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)
    assert "0/s done  <0.1/s failed (1 in 1 h)  1 ready" in plain
    terminal.write("q")
    terminal.read_all()
    assert terminal.end() == 0


async def test_top_tells_everything_as_json(url: str) -> None:
    told = json.loads(await command("top", "--json", url=url))
    assert [each["name"] for each in told["queues"]] == ["images", "mail"]
    assert told["ended"] == [{"queue": "mail", "state": "failed", "jobs": 1}]
    assert told["latency_by_queue"]["mail"]["jobs"] == 1
    assert told["failures"][0]["error_code"] == "BAD_ADDRESS"
    assert told["ended_last_minute"] == [{"queue": "mail", "state": "failed", "jobs": 1}]
    assert told["rate"]["done"] == 0.0
    assert 0 < told["rate"]["failed"] == told["rate_by_queue"]["mail"]["failed"] <= 1 / 60
    assert set(told["rate_by_queue"]) == {"images", "mail"}


async def test_top_survives_a_restart_of_the_database(own_postgres: Server, tmp_path: Path) -> None:
    url = own_postgres.url("postgres")
    await Holdfast(url).migrate()
    terminal = shown(url, tmp_path)
    terminal.read_until("no queues")
    own_postgres.stop()
    terminal.read_until("can't read the database")
    own_postgres.start()
    terminal.read_until("every 0.2 s")
    terminal.write("q")
    terminal.read_all()
    assert terminal.end() == 0
