// The list of jobs: choose all of the page at once, and see how many are chosen.

const form = document.getElementById("change-form");

function boxes() {
  return [...document.querySelectorAll("input[name=id][form=change-form]")];
}

function show() {
  const chosen = boxes().filter((box) => box.checked).length;
  const all = document.getElementById("choose-all");
  document.getElementById("chosen").textContent = String(chosen);
  document.getElementById("summary-chosen").textContent = chosen > 0 ? `: ${chosen} selected` : "";
  form.closest("details").classList.toggle("has-chosen", chosen > 0);
  if (all) {
    all.checked = chosen > 0 && chosen === boxes().length;
    all.indeterminate = chosen > 0 && !all.checked;
  }
}

if (form) {
  document.addEventListener("change", (event) => {
    const { target } = event;
    if (target.id === "choose-all") {
      for (const box of boxes()) {
        box.checked = target.checked;
      }
    } else if (target.name !== "id") {
      return;
    }
    if (target.checked) {
      form.querySelector("input[name=which][value=selected]").checked = true;
    }
    show();
  });
  document.addEventListener("updated", showAll);
  showAll();
}

// After an update in place, too, which brings back what the server sent.
function showAll() {
  for (const hidden of document.querySelectorAll("[data-needs-script]")) {
    hidden.hidden = false;
  }
  show();
}
