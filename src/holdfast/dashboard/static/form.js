// Buttons that change a form, like "Add an item", without loading the page again. The server
// renders the changed form; here only its fields are replaced, and the focus is kept.

const HEADERS = { "Content-Type": "application/x-www-form-urlencoded", Accept: "text/html" };

async function change(form, name, value, find) {
  const data = new URLSearchParams(new FormData(form));
  data.set(name, value);
  form.setAttribute("aria-busy", "true");
  try {
    const answer = await fetch(form.action, { method: "POST", headers: HEADERS, body: data, redirect: "error" });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fields = page.querySelector("[data-fields]");
    if (!fields) return send(form, name, value);
    form.querySelector("[data-fields]").replaceWith(document.importNode(fields, true));
    find()?.focus();
  } catch {
    send(form, name, value);
  } finally {
    form.removeAttribute("aria-busy");
  }
}

// As without scripts.
function send(form, name, value) {
  const field = document.createElement("input");
  Object.assign(field, { type: "hidden", name, value });
  form.append(field);
  form.submit();
}

function firstField(element) {
  return element?.querySelector("input:not([type=hidden]), select, textarea");
}

function after(button) {
  const [verb] = button.value.split(" ");
  const group = button.closest("fieldset")?.id;
  const id = button.id;
  return () => {
    const around = document.getElementById(group);
    if (verb === "add") {
      const items = around?.querySelectorAll(":scope > .item");
      return firstField(items?.[items.length - 1]) ?? document.getElementById(id);
    }
    if (verb === "remove") return document.querySelector(`#${group} > .item-actions button`) ?? firstField(around);
    return document.getElementById(id) ?? firstField(around) ?? firstField(document.querySelector("[data-fields]"));
  };
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("form[data-form] button[name=do]");
  if (!button || button.value === "run") return;
  event.preventDefault();
  change(button.form, "do", button.value, after(button));
});

document.addEventListener("change", (event) => {
  const select = event.target.closest("form[data-form] select[data-way]");
  if (select) change(select.form, "do", "switch", () => document.getElementById(select.id));
});

// The first field with an error.
document.querySelector("[data-fields] [aria-invalid]")?.focus();
