"""Updating a page in place: what differs changes, and what the viewer is using stays."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.browser.stage import Stage

pytestmark = [pytest.mark.heavy, pytest.mark.slow]

# Makes the first text an element, lets the viewer use it, morphs it into each of the next texts,
# and reports how it looks. The marks of elements say which of them are still the same ones.
MORPH = """async ([source, texts, use]) => {
  const {morph} = await import(source);
  const made = (text) => {
    const section = document.createElement("section");
    section.innerHTML = text;
    return section;
  };
  const section = made(texts[0]);
  document.querySelector("main").replaceChildren(section);
  for (const each of section.querySelectorAll("[id]")) each.mark = each.id;
  if (use) new Function("section", "$", use)(section, (css) => section.querySelector(css));
  const seen = [];
  for (const text of texts.slice(1)) {
    const isWhole = morph(section, made(text));
    seen.push({
      isWhole,
      order: [...section.children].map((each) => each.id),
      same: [...section.querySelectorAll("[id]")].filter((each) => each.mark === each.id).length,
      text: section.textContent,
      focus: document.activeElement?.id ?? "",
      gone: [...section.querySelectorAll("[data-gone]")].map((each) => each.id),
      values: [...section.querySelectorAll("input, textarea, select")].map((each) => each.value),
      checked: [...section.querySelectorAll(":checked:not(option)")].map((each) => each.id),
      open: [...section.querySelectorAll("details[open], dialog[open]")].map((each) => each.id),
    });
  }
  return seen;
}"""


async def morphed(page: Page, *texts: str, use: str = "") -> list[dict[str, Any]]:
    await page.goto("/ui/nothing")
    script = await page.locator("script[src]").first.get_attribute("src")
    source = re.sub(r"[^/]+$", "morph.js", script or "")
    # The page's policy forbids code in texts, so the use is a function of the test's own world.
    seen: list[dict[str, Any]] = await page.evaluate(
        MORPH.replace('new Function("section", "$", use)', f"((section, $) => {{ {use} }})"),
        [source, list(texts), use],
    )
    return seen


def rows(*ids: str) -> str:
    return "".join(
        f'<div id="{each}"><button id="{each}-button">{each}</button></div>\n' for each in ids
    )


async def test_rows_that_move_come_and_go_stay_the_same_elements(page: Page) -> None:
    seen = await morphed(page, rows("a", "b", "c"), rows("c", "x", "a"), rows("a", "b", "c", "x"))
    assert [each["order"] for each in seen] == [["c", "x", "a"], ["a", "b", "c", "x"]]
    assert [each["same"] for each in seen] == [4, 4]  # a and c, with their buttons
    assert all(each["isWhole"] for each in seen)


async def test_the_focused_row_keeps_the_focus_wherever_it_moves(page: Page) -> None:
    seen = await morphed(
        page,
        rows("a", "b", "c"),
        rows("c", "b", "a"),
        rows("x", "y", "a", "b"),
        rows("b"),
        use="$('#b-button').focus()",
    )
    assert [each["focus"] for each in seen] == ["b-button"] * 3
    assert [each["order"] for each in seen] == [["c", "b", "a"], ["x", "y", "a", "b"], ["b"]]


async def test_a_focused_row_that_has_gone_stays_until_it_is_left(page: Page) -> None:
    seen = await morphed(
        page, rows("a", "b"), rows("a"), rows("a", "b"), use="$('#b-button').focus()"
    )
    gone, back = seen
    assert (gone["focus"], gone["gone"], gone["isWhole"]) == ("b-button", ["b"], False)
    assert (back["focus"], back["gone"], back["isWhole"]) == ("b-button", [], True)
    (left,) = await morphed(page, rows("a", "b"), rows("a"), use="$('#b-button').blur()")
    assert left["order"] == ["a"]


async def test_what_was_typed_and_chosen_stays_and_what_was_not_changes(page: Page) -> None:
    def form(value: str) -> str:
        options = "".join(f"<option{' selected' * (each == value)}>{each}" for each in "pqr")
        checked = " checked" if value == "q" else ""
        return (
            f'<input id="typed" value="{value}"><input id="untouched" value="{value}">'
            f'<textarea id="area">{value}</textarea><select id="one">{options}</select>'
            f'<input type="checkbox" id="ticked" value="1"><input type="checkbox" id="b"{checked}>'
        )

    use = "$('#typed').value = 'mine'; $('#one').value = 'r'; $('#ticked').checked = true"
    (seen,) = await morphed(page, form("p"), form("q"), use=use)
    assert seen["values"] == ["mine", "q", "q", "r", "1", "on"]
    assert seen["checked"] == ["ticked", "b"]


async def test_open_details_and_dialogs_stay_open(page: Page) -> None:
    def both(text: str) -> str:
        return f'<details id="d"><p>{text}</p></details><dialog id="e"><p>{text}</p></dialog>'

    use = "$('#d').open = true; $('#e').showModal()"
    (seen,) = await morphed(page, both("old"), both("new"), use=use)
    assert seen["open"] == ["d", "e"]
    assert (seen["text"], seen["isWhole"]) == ("newold", False)  # a question never changes


async def test_texts_and_attributes_change_in_place(page: Page) -> None:
    (seen,) = await morphed(
        page,
        '<p id="p" class="old" title="x">one <b>two</b></p><time datetime="t">1 s ago</time>',
        '<p id="p" class="new">uno <b>dos</b> tres</p><time datetime="t">in UTC</time>',
    )
    assert (seen["text"], seen["same"]) == ("uno dos tres1 s ago", 1)


async def test_a_selected_text_is_left_alone_until_it_is_not_selected(
    page: Page, stage: Stage
) -> None:
    await page.goto("/ui/jobs")
    jobs = page.locator("#jobs tbody tr")
    before = await jobs.count()
    await page.evaluate(
        "getSelection().selectAllChildren(document.querySelector('#jobs tbody tr td:nth-child(3)'))"
    )
    selected = await page.evaluate("getSelection().toString()")
    other = await page.context.new_page()
    await other.goto("/ui/jobs")
    await stage.hf._functions["report"].enqueue(8)
    await expect(other.locator("#jobs tbody tr")).to_have_count(before + 1)
    assert await page.evaluate("getSelection().toString()") == selected
    await expect(jobs).to_have_count(before)
    await page.evaluate("getSelection().removeAllRanges()")
    await expect(jobs).to_have_count(before + 1)


async def test_a_hidden_page_asks_nothing_and_catches_up_when_it_is_shown(
    page: Page, stage: Stage
) -> None:
    asked = asyncio.Event()
    await page.goto("/ui/jobs")
    jobs = page.locator("#jobs tbody tr")
    before = await jobs.count()
    hide = "Object.defineProperty(document, 'hidden', {value: %s, configurable: true});"
    changed = "document.dispatchEvent(new Event('visibilitychange'))"
    await page.evaluate(hide % "true" + changed)
    page.on("request", lambda request: asked.set())
    await stage.hf._functions["report"].enqueue(8)
    assert not asked.is_set()
    await page.evaluate(hide % "false" + changed)
    await expect(jobs).to_have_count(before + 1)
    assert asked.is_set()
