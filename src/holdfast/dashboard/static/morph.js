// Update an element in place to look like another one. What the viewer is using stays as it is: the
// focus, typed input, open dialogs and opened details. Elements are matched by id, then by position.

const FIELDS = "input:not([type=hidden]), select, textarea";

// Returns whether all of it was updated.
export function morph(element, next) {
  if (isKept(element)) return false;
  if (element.matches("time") && element.dateTime === next.dateTime) return true;
  if (element.matches("textarea, select") && isInUse(element)) return true;
  let isWhole = true;
  morphAttributes(element, next);
  const byId = new Map();
  for (const child of element.children) if (child.id) byId.set(child.id, child);

  let place = element.firstChild;
  for (const wanted of [...next.childNodes]) {
    const match = matching(wanted, place, byId);
    if (!match) {
      element.insertBefore(document.importNode(wanted, true), place);
      continue;
    }
    if (match !== place) {
      if (holdsUse(match)) moveBehind(element, place, match, byId);
      else element.insertBefore(match, place);
    }
    place = match.nextSibling;
    if (match.nodeType === Node.ELEMENT_NODE) isWhole = morph(match, wanted) && isWhole;
    else if (match.data !== wanted.data) match.data = wanted.data;
  }
  while (place) {
    const following = place.nextSibling;
    if (holdsUse(place)) {
      place.dataset.gone = "";
      isWhole = false;
    } else {
      place.remove();
    }
    place = following;
  }
  return isWhole;
}

// An element with an id stands for one thing, and only for that.
function matching(wanted, place, byId) {
  if (wanted.id) {
    const match = byId.get(wanted.id);
    return match?.tagName === wanted.tagName ? match : null;
  }
  const isAlike = place && place.nodeType === wanted.nodeType && place.nodeName === wanted.nodeName;
  return isAlike && !place.id ? place : null;
}

// To move an element takes the focus away from it, so move the others behind it.
function moveBehind(parent, place, match, byId) {
  const after = match.nextSibling;
  while (place && place !== match) {
    const following = place.nextSibling;
    if (!holdsUse(place)) {
      if (place.id && byId.has(place.id)) parent.insertBefore(place, after);
      else place.remove();
    }
    place = following;
  }
}

function holdsUse(node) {
  if (node.nodeType !== Node.ELEMENT_NODE) return false;
  return node.contains(document.activeElement) || isKept(node) ||
    node.querySelector("dialog[open], dialog:popover-open") !== null ||
    [...node.querySelectorAll(FIELDS)].some(isInUse);
}

function isKept(element) {
  return element.matches("dialog[open], dialog:popover-open, [data-keep]");
}

// Whether the viewer is at this field, or has changed it.
function isInUse(field) {
  if (field === document.activeElement) return true;
  if (field.matches("select")) {
    return [...field.options].some((option) => option.selected !== option.defaultSelected);
  }
  if (field.matches("[type=checkbox], [type=radio]")) return field.checked !== field.defaultChecked;
  return field.value !== field.defaultValue;
}

// What scripts did.
function isOurs(element, name) {
  if (name === "open") return element.matches("details, dialog");
  if (name === "data-sent") return true;
  if (name === "popover") return element.matches("dialog");
  if (name === "hidden") return element.matches("[data-copy]");
  if (name === "title") return element.matches("time");
  if (element.matches(".plot-area")) return /^(role|tabindex|aria-.*)$/.test(name);
  return false;
}

function morphAttributes(element, next) {
  for (const { name } of [...element.attributes]) {
    if (!next.hasAttribute(name) && !isOurs(element, name)) element.removeAttribute(name);
  }
  const isUsed = element.matches("input:not([type=hidden])") && isInUse(element);
  for (const { name, value } of next.attributes) {
    if (isOurs(element, name) || element.getAttribute(name) === value) continue;
    if (isUsed && (name === "value" || name === "checked")) continue;
    element.setAttribute(name, value);
  }
}
