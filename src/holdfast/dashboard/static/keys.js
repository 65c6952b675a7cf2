// Keyboard shortcuts: `?` for help, `/` for the search, `g` and a letter for a page. They can be
// turned off, as speech input and screen readers may need.

const STORED = "holdfast-shortcuts";
const SECOND_KEY_MS = 1500;

function isTyping(target) {
  return target.closest("input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable]");
}

export function takeKeys(showHelp, choice) {
  let startedAt = -Infinity;
  choice.checked = localStorage.getItem(STORED) !== "off";
  choice.addEventListener("change", () => {
    if (choice.checked) localStorage.removeItem(STORED);
    else localStorage.setItem(STORED, "off");
  });

  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && isTyping(event.target) && !event.target.closest("dialog")) {
      return event.target.blur();
    }
    if (!choice.checked || event.ctrlKey || event.metaKey || event.altKey) return;
    if (isTyping(event.target) || document.querySelector("dialog[open]")) return;
    const isSecond = event.timeStamp - startedAt < SECOND_KEY_MS;
    startedAt = -Infinity;
    if (isSecond) {
      const link = document.querySelector(`#menu a[data-key="${CSS.escape(event.key)}"]`);
      if (link) {
        event.preventDefault();
        link.click();
      }
    } else if (event.key === "g") {
      startedAt = event.timeStamp;
    } else if (event.key === "?") {
      event.preventDefault();
      showHelp();
    } else if (event.key === "/") {
      const search = document.querySelector("[data-search], input[type=search]");
      if (search) {
        event.preventDefault();
        search.focus();
        search.select();
      }
    }
  });
}
