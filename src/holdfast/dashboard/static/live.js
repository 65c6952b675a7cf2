// One event stream per page. It says only that something may have changed; then the page is read
// again, and its parts marked with data-live are updated in place.

import { morph } from "./morph.js";

const UNAUTHORIZED = [401, 403];
const RETRY_MS = 2000;
const STALE_RETRY_MS = 5000;
const STALE_AFTER_MS = 3000; // a server that restarts is back before
const REST = 4; // times as long as the reading took: a busy server is read less often

export function watch(url, { updated, loggedOut, stale, fresh }) {
  let source = null;
  let silence = null; // ends with the first sign of the server
  let retry = null;
  let isStale = false;
  let knownAt = new Date();
  let etag = null;
  let isReading = false;
  let isBehind = false;
  let isPressed = false;
  let isResting = false;

  function open() {
    if (source || document.hidden) return;
    source = new EventSource(url);
    source.addEventListener("changed", read);
    source.addEventListener("open", () => isStale ? read() : hear());
    source.addEventListener("error", () => {
      awaitServer();
      // A broken stream reconnects by itself; one that was refused is closed.
      if (source?.readyState === EventSource.CLOSED) {
        source = null;
        read();
      }
    });
  }

  function close() {
    source?.close();
    source = null;
  }

  function awaitServer() {
    silence ??= setTimeout(() => lag("The server doesn't answer"), STALE_AFTER_MS);
  }

  function hear() {
    clearTimeout(silence);
    silence = null;
  }

  // Until it is up to date again, the page says since when it is not, and keeps trying.
  function lag(reason) {
    if (!isStale) stale(reason, knownAt);
    isStale = true;
    clearTimeout(retry);
    retry = setTimeout(read, STALE_RETRY_MS);
  }

  function keepUp() {
    hear();
    clearTimeout(retry);
    if (isStale) fresh();
    isStale = false;
    knownAt = new Date();
  }

  function mustWait() {
    return isPressed || [...document.querySelectorAll("[data-live]")].some(isSelectedIn);
  }

  async function read() {
    if (isReading || isResting || document.hidden || mustWait()) {
      isBehind = true;
      return;
    }
    isReading = true;
    isBehind = false;
    const began = performance.now();
    try {
      const headers = { "X-Live": "1", Accept: "text/html", ...(etag && { "If-None-Match": etag }) };
      const answer = await fetch(location.href, { headers, cache: "no-store", redirect: "error" });
      if (UNAUTHORIZED.includes(answer.status)) {
        close();
        return loggedOut();
      }
      if (answer.status >= 500) lag(await reasonOf(answer));
      else keepUp();
      if (answer.status === 200 && answer.headers.get("content-type")?.startsWith("text/html")) {
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        if (mustWait()) isBehind = true;
        else if (update(page)) etag = answer.headers.get("etag");
      }
    } catch {
      awaitServer();
    } finally {
      isReading = false;
    }
    rest(REST * (performance.now() - began));
    if (!source) setTimeout(open, RETRY_MS);
  }

  function rest(milliseconds) {
    isResting = true;
    setTimeout(() => {
      isResting = false;
      catchUp();
    }, milliseconds);
  }

  function update(page) {
    let isWhole = true;
    for (const section of document.querySelectorAll("[data-live]:not(body)")) {
      const next = page.getElementById(section.id);
      if (!next) continue;
      isWhole = morph(section, next) && isWhole;
      updated(section);
    }
    return isWhole;
  }

  function catchUp() {
    if (isBehind) read();
  }

  // Nothing moves away under a finger or the pointer, and no selection is lost.
  document.addEventListener("pointerdown", () => { isPressed = true; });
  for (const name of ["pointerup", "pointercancel"]) {
    document.addEventListener(name, () => {
      isPressed = false;
      setTimeout(catchUp); // after the click
    });
  }
  window.addEventListener("blur", () => { isPressed = false; });
  document.addEventListener("selectionchange", () => getSelection().isCollapsed && catchUp());
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return close();
    open();
    read();
  });
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", open);
  open();
}

async function reasonOf(answer) {
  const isProblem = answer.headers.get("content-type")?.startsWith("application/problem+json");
  return isProblem ? (await answer.json()).title : "The server can't update this page";
}

function isSelectedIn(section) {
  const selection = getSelection();
  return !selection.isCollapsed && section !== document.body && selection.containsNode(section, true);
}
