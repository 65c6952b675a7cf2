// What every page improves with scripts: live updates, times, dialogs, keys, copying, the theme.
// Pages work without it.

import { watch } from "./live.js";
import { showTimes } from "./times.js";
import { takeKeys } from "./keys.js";

function openDialog(dialog) {
  dialog.removeAttribute("popover"); // a real dialog keeps the focus inside
  if (!dialog.open) dialog.showModal();
}

// Buttons open their dialog as a popover if there are no scripts.
document.addEventListener("click", (event) => {
  const opener = event.target.closest("[data-dialog]");
  if (opener) {
    event.preventDefault();
    openDialog(document.getElementById(opener.dataset.dialog));
  } else if (event.target.closest("dialog [data-close]")) {
    event.preventDefault();
    event.target.closest("dialog").close();
  } else if (event.target instanceof HTMLDialogElement && event.target.open) {
    event.target.close(); // a click beside it
  }
});

// A form that was sent once is not sent again by a second click.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.method !== "post") return;
  if (form.dataset.sent) return event.preventDefault();
  form.dataset.sent = "yes";
});
window.addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("form[data-sent]")) delete form.dataset.sent;
});

function showCopyButtons(root) {
  for (const button of root.querySelectorAll("[data-copy][hidden]")) button.hidden = false;
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
  } catch {
    return announce("Your browser did not allow copying.", "warn");
  }
  button.classList.add("done");
  announceQuietly("Copied");
  setTimeout(() => button.classList.remove("done"), 1500);
});

const notices = document.getElementById("notices");

export function announce(text, tone = "good", link = null) {
  const notice = document.createElement("div");
  notice.className = `notice tone-${tone}`;
  const words = document.createElement("p");
  words.textContent = text;
  if (link) {
    const anchor = document.createElement("a");
    anchor.href = link.href;
    anchor.textContent = link.text;
    words.append(" ", anchor);
  }
  notice.append(words);
  notices.replaceChildren(notice);
}

const announcer = document.getElementById("announcer");

function announceQuietly(text) {
  announcer.textContent = text;
  setTimeout(() => { announcer.textContent = ""; }, 1500);
}

// A screen reader says how these parts of a page are after each change.
const spoken = new Map();

function speakChanges(root) {
  for (const element of root.querySelectorAll("[data-spoken]")) {
    const before = spoken.get(element.dataset.spoken);
    const words = `${element.dataset.spoken}: ${element.textContent.trim()}`;
    spoken.set(element.dataset.spoken, words);
    if (before !== undefined && before !== words) announceQuietly(words);
  }
}

// The theme is a cookie, so that the server renders it and no page flashes.
const themes = { "": "as the system", light: "light", dark: "dark" };
const toggle = document.querySelector("[data-theme-toggle]");

function showTheme() {
  toggle.setAttribute("aria-label", `Theme: ${themes[document.documentElement.dataset.theme ?? ""]}`);
  toggle.title = toggle.getAttribute("aria-label");
}

toggle?.addEventListener("click", () => {
  const names = Object.keys(themes);
  const now = document.documentElement.dataset.theme ?? "";
  const next = names[(names.indexOf(now) + 1) % names.length];
  if (next) document.documentElement.dataset.theme = next;
  else delete document.documentElement.dataset.theme;
  const age = next ? 365 * 86400 : 0;
  document.cookie = `holdfast-theme=${next}; Path=/; Max-Age=${age}; SameSite=Lax`;
  showTheme();
  announceQuietly(toggle.getAttribute("aria-label"));
});
if (toggle) {
  toggle.hidden = false;
  showTheme();
}

const help = document.getElementById("help");
const helpButton = document.querySelector("[data-help]");
if (help) {
  helpButton.hidden = false;
  helpButton.addEventListener("click", () => openDialog(help));
  takeKeys(() => openDialog(help), help.querySelector("[data-shortcuts]"));
}

// Tabs that don't fit scroll: the current one is in view.
for (const current of document.querySelectorAll(".tabs [aria-current]")) {
  const tabs = current.parentElement;
  const [tab, all] = [current.getBoundingClientRect(), tabs.getBoundingClientRect()];
  tabs.scrollLeft += tab.left - all.left - (all.width - tab.width) / 2;
}

showCopyButtons(document);
showTimes(document);
speakChanges(document);
setInterval(() => document.hidden || showTimes(document), 1000);

// Beside the page, so that nothing moves.
const lateNotice = document.createElement("p");
lateNotice.className = "late-notice";

if (document.body.dataset.live) {
  watch(document.body.dataset.live, {
    updated(section) {
      showCopyButtons(section);
      showTimes(section);
      speakChanges(section);
      section.dispatchEvent(new CustomEvent("updated", { bubbles: true }));
    },
    stale(reason, knownAt) {
      const time = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" }).format(knownAt);
      lateNotice.textContent = `${reason}. This page is as of ${time}.`;
      document.getElementById("main").append(lateNotice);
      announceQuietly(lateNotice.textContent);
    },
    fresh() {
      lateNotice.remove();
      announceQuietly("This page is up to date again.");
    },
    loggedOut() {
      const href = `/ui/login?next=${encodeURIComponent(location.pathname + location.search)}`;
      announce("Your session has ended.", "warn", { href, text: "Log in" });
    },
  });
}
