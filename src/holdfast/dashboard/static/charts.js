// The read-out of charts: what the values were at the pointer, or, with the arrow keys, at a cursor.
// Each plot is a slider for screen readers, which say its values as it moves.

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
const exact = new Intl.DateTimeFormat(undefined, {
  month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit",
});
const SHORT_STEP = 60;
const MARGIN = 12;

let open = null; // the plot whose read-out is shown, and where: { plot, place, box, cursor }

function dataOf(plot) {
  return JSON.parse(plot.querySelector("script").textContent);
}

function pointsOf(data) {
  return data.lines[0]?.texts.length ?? 0;
}

function timeOf(data, place) {
  const at = new Date((data.since + place * data.step) * 1000);
  return data.step < SHORT_STEP ? exact.format(at) : `${day.format(at)}, ${clock.format(at)}`;
}

function wordsOf(data, place) {
  const values = data.lines.map((line) => `${line.name}: ${line.texts[place] ?? "no data"}`);
  return `${timeOf(data, place)}. ${values.join("; ")}`;
}

function close() {
  open?.box.remove();
  open?.cursor.remove();
  open = null;
}

function fill(box, data, place) {
  const time = document.createElement("p");
  time.textContent = timeOf(data, place);
  const list = document.createElement("dl");
  for (const line of data.lines) {
    const name = document.createElement("dt");
    name.className = line.tone;
    name.textContent = line.name;
    const value = document.createElement("dd");
    value.textContent = line.texts[place] ?? "no data";
    list.append(name, value);
  }
  box.replaceChildren(time, list);
}

function show(plot, place) {
  const data = dataOf(plot);
  const count = pointsOf(data);
  if (!count) return close();
  place = Math.min(Math.max(place, 0), count - 1);
  if (open?.plot !== plot || !open.cursor.isConnected) {
    close();
    open = { plot, box: document.createElement("div"), cursor: document.createElement("div") };
    open.box.className = "read-out";
    open.box.setAttribute("aria-hidden", "true");
    open.cursor.className = "plot-cursor";
    open.cursor.dataset.keep = "";
    document.body.append(open.box);
    areaOf(plot).append(open.cursor);
  }
  open.place = place;
  fill(open.box, data, place);
  const area = areaOf(plot).getBoundingClientRect();
  const x = (area.width * (place + 0.5)) / count;
  open.cursor.style.insetInlineStart = `${x}px`;
  const width = open.box.offsetWidth;
  const beside = area.left + x + MARGIN;
  const left = beside + width > innerWidth - 4 ? area.left + x - MARGIN - width : beside;
  open.box.style.left = `${Math.max(4, left) + scrollX}px`;
  open.box.style.top = `${area.top + scrollY}px`;
}

function areaOf(plot) {
  return plot.querySelector(".plot-area");
}

function tell(area, data, place) {
  area.setAttribute("aria-valuenow", place);
  area.setAttribute("aria-valuetext", wordsOf(data, place));
}

function prepare(plot) {
  const area = areaOf(plot);
  const data = dataOf(plot);
  const count = pointsOf(data);
  if (!count) return;
  const place = open?.plot === plot ? Math.min(open.place, count - 1) : count - 1;
  area.tabIndex = 0;
  area.setAttribute("role", "slider");
  area.setAttribute("aria-label", area.querySelector("svg").getAttribute("aria-label"));
  area.querySelector("svg").setAttribute("aria-hidden", "true");
  area.setAttribute("aria-valuemin", "0");
  area.setAttribute("aria-valuemax", count - 1);
  tell(area, data, place);
}

function showAxes(root) {
  for (const label of root.querySelectorAll(".plot-x [data-clock]")) {
    label.textContent = clock.format(new Date(label.dataset.clock * 1000));
  }
  for (const label of root.querySelectorAll(".plot-x [data-day]")) {
    label.textContent = day.format(new Date(label.dataset.day * 1000));
  }
}

function improve(root) {
  for (const plot of root.querySelectorAll("[data-chart]")) prepare(plot);
  showAxes(root);
}

document.addEventListener("pointermove", (event) => {
  const plot = event.target.closest?.("[data-chart]");
  const area = event.target.closest?.(".plot-area");
  if (!plot || !area) {
    if (open && document.activeElement !== areaOf(open.plot)) close();
    return;
  }
  const box = area.getBoundingClientRect();
  const count = pointsOf(dataOf(plot));
  show(plot, Math.floor(((event.clientX - box.left) / box.width) * count));
});

const MOVES = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10 };

document.addEventListener("keydown", (event) => {
  const area = event.target.closest?.(".plot-area[role=slider]");
  if (!area) return;
  const plot = area.closest("[data-chart]");
  const data = dataOf(plot);
  const last = pointsOf(data) - 1;
  let place = Number(area.getAttribute("aria-valuenow"));
  if (event.key in MOVES) place += MOVES[event.key];
  else if (event.key === "Home") place = 0;
  else if (event.key === "End") place = last;
  else if (event.key === "Escape") return close();
  else return;
  event.preventDefault();
  place = Math.min(Math.max(place, 0), last);
  tell(area, data, place);
  show(plot, place);
});

document.addEventListener("focusin", (event) => {
  const area = event.target.closest?.(".plot-area[role=slider]");
  if (area && area.matches(":focus-visible")) show(area.closest("[data-chart]"), Number(area.getAttribute("aria-valuenow")));
});
document.addEventListener("focusout", (event) => {
  if (open && event.target === areaOf(open.plot)) close();
});
addEventListener("scroll", () => {
  if (!open) return;
  const isInUse = open.plot.matches(":hover") || document.activeElement === areaOf(open.plot);
  if (!isInUse) close();
}, { passive: true });

document.addEventListener("updated", (event) => {
  improve(event.target);
  if (open) show(open.plot, open.place);
});
improve(document);
