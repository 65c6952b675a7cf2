// Times in the viewer's zone: how long ago, or inside a sentence the time of day, and the exact one on
// hover.

const exact = new Intl.DateTimeFormat(undefined, {
  year: "numeric", month: "short", day: "numeric",
  hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3,
  timeZoneName: "short",
});
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
const dayOfYear = new Intl.DateTimeFormat(undefined, {
  year: "numeric", month: "short", day: "numeric",
});

const UNITS = [[60, 1, "s"], [3600, 60, "min"], [86400, 3600, "h"], [Infinity, 86400, "d"]];
const OLD_SECONDS = 3 * 86400;

function relative(at, now) {
  const seconds = Math.round((now - at) / 1000);
  const distance = Math.abs(seconds);
  if (distance >= OLD_SECONDS) {
    const sameYear = at.getFullYear() === now.getFullYear();
    return `${(sameYear ? day : dayOfYear).format(at)}, ${clock.format(at)}`;
  }
  if (distance < 1) return "now";
  const [, size, unit] = UNITS.find(([below]) => distance < below);
  const words = `${Math.floor(distance / size)} ${unit}`;
  return seconds > 0 ? `${words} ago` : `in ${words}`;
}

function clockTime(at, now) {
  const isToday = day.format(at) === day.format(now) && now - at < 86400_000;
  return isToday ? clock.format(at) : `${day.format(at)}, ${clock.format(at)}`;
}

function isSelected(element) {
  const selection = getSelection();
  return !selection.isCollapsed && selection.containsNode(element, true);
}

export function showTimes(root) {
  const now = new Date();
  for (const element of root.querySelectorAll("time[datetime]")) {
    const at = new Date(element.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    const title = exact.format(at);
    if (element.title !== title) element.title = title;
    const words = element.dataset.clock === undefined ? relative(at, now) : clockTime(at, now);
    if (element.textContent !== words && !isSelected(element)) element.textContent = words;
  }
}
