// Suggestions below a search field: the combobox pattern of the ARIA Authoring Practices. The focus
// stays in the field. Without this script, the field works as it is.

const QUIET_MS = 120;

for (const field of document.querySelectorAll("input[data-suggest]")) {
  suggest(field);
}

function suggest(field) {
  const list = document.createElement("ul");
  let active = -1;
  let timer = null;
  let asked = null;

  list.id = `${field.id}-suggestions`;
  list.className = "suggestions";
  list.hidden = true;
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "Suggestions");
  field.after(list);
  for (const [name, value] of Object.entries({
    role: "combobox",
    autocomplete: "off",
    "aria-autocomplete": "list",
    "aria-expanded": "false",
    "aria-controls": list.id,
  })) {
    field.setAttribute(name, value);
  }

  field.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(ask, QUIET_MS);
  });
  field.addEventListener("blur", close);
  field.addEventListener("keydown", (event) => {
    if (!event.isComposing && !event.ctrlKey && !event.metaKey && keys[event.key]?.()) {
      event.preventDefault();
      event.stopPropagation();
    }
  });
  list.addEventListener("mousedown", (event) => event.preventDefault());
  list.addEventListener("click", (event) => {
    const option = event.target.closest("[role=option]");
    if (option) {
      choose(option);
    }
  });

  const keys = {
    ArrowDown: () => move(1),
    ArrowUp: () => move(-1),
    Enter: () => active >= 0 && choose(list.children[active]),
    Escape: () => !list.hidden && close(),
  };

  async function ask() {
    asked?.abort();
    asked = new AbortController();
    const caret = field.selectionStart ?? field.value.length;
    const query = new URLSearchParams({ q: field.value.slice(0, caret) });
    try {
      const response = await fetch(`${field.dataset.suggest}?${query}`, {
        headers: { accept: "application/json" },
        signal: asked.signal,
      });
      show(response.ok ? (await response.json()).completions : []);
    } catch {
      // A newer question replaced this one, or the server can't be reached: typing works as before.
    }
  }

  function show(completions) {
    if (document.activeElement !== field || completions.length === 0) {
      close();
      return;
    }
    list.replaceChildren(...completions.map(toOption));
    list.hidden = false;
    field.setAttribute("aria-expanded", "true");
    mark(-1);
  }

  function toOption({ text, label, about, whole }, index) {
    const option = document.createElement("li");
    const name = document.createElement("span");
    option.id = `${list.id}-${index}`;
    option.setAttribute("role", "option");
    option.dataset.text = whole ? `${text} ` : text;
    option.dataset.whole = whole;
    name.textContent = label;
    option.append(name);
    if (about) {
      const hint = document.createElement("small");
      hint.textContent = about;
      option.append(hint);
    }
    return option;
  }

  function move(step) {
    if (list.hidden) {
      ask();
      return true;
    }
    const count = list.children.length;
    mark(active < 0 && step < 0 ? count - 1 : (active + step + count) % count);
    return true;
  }

  function mark(index) {
    active = index;
    [...list.children].forEach((option, place) => {
      option.setAttribute("aria-selected", String(place === index));
    });
    if (index < 0) {
      field.removeAttribute("aria-activedescendant");
      return;
    }
    field.setAttribute("aria-activedescendant", list.children[index].id);
    list.children[index].scrollIntoView({ block: "nearest" });
  }

  function choose(option) {
    const caret = field.selectionStart ?? field.value.length;
    const rest = field.value.slice(caret).replace(/^\S+/, "").trimStart();
    field.value = option.dataset.text + rest;
    field.setSelectionRange(option.dataset.text.length, option.dataset.text.length);
    close();
    if (option.dataset.whole === "false") {
      ask();
    }
    return true;
  }

  function close() {
    clearTimeout(timer);
    asked?.abort();
    list.hidden = true;
    active = -1;
    field.setAttribute("aria-expanded", "false");
    field.removeAttribute("aria-activedescendant");
    return true;
  }
}
