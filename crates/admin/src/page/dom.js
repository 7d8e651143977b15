// Creates elements without markup, so that names from traffic remain text.

/** Creates an element. `on` has listeners. `style` is set through the CSSOM, which the content security policy allows. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") Object.entries(value).forEach(([event, run]) => element.addEventListener(event, run));
    else if (name === "style") Object.entries(value).forEach(([key, to]) => element.style.setProperty(key, to));
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  Object.entries(attributes).forEach(([name, value]) => element.setAttribute(name, value));
  element.append(...children);
  return element;
}

export const byId = (id) => document.getElementById(id);

/** Sets the text only if it differs, so that screen readers hear only changes and selections are kept. */
export function text(element, value) {
  const wanted = value ?? "";
  if (element.textContent !== wanted) element.textContent = wanted;
}

/** A placeholder for an unknown number, with the reason. */
export const unknown = (why = "unknown") =>
  h("span", { class: "unknown", title: why }, h("span", { "aria-hidden": "true" }, "–"), h("span", { class: "vh" }, why));

let pressed = false; // whether a mouse button or a finger is down
const waiting = new Map(); // updates that wait for the release, by owner

addEventListener("pointerdown", ({ button }) => (pressed ||= button === 0), true);
for (const end of ["pointerup", "pointercancel", "blur"]) addEventListener(end, released, true);

function released({ type, target }) {
  if (!pressed || (type === "blur" && target !== window)) return;
  pressed = false;
  // The click event comes first.
  setTimeout(() => {
    const all = [...waiting];
    waiting.clear();
    all.forEach(([owner, show]) => unpressed(owner, show));
  });
}

/** Runs `show`, which may move elements, but not while a button is pressed: a click on an element that moves away would be
 * lost. `owner` identifies the update. */
export function unpressed(owner, show) {
  if (pressed) return void waiting.set(owner, show);
  waiting.delete(owner);
  show();
}

/** Makes `parent` contain an element for each of `items`, in order. Existing elements are kept, with their focus and
 * selection. */
export function keyed(parent, items, key, make, update) {
  unpressed(parent, () => arrange(parent, items, key, make, update));
}

function arrange(parent, items, key, make, update) {
  const wanted = new Map(items.map((item) => [key(item), item]));
  const old = parent.keyed ?? new Map();
  // Elements are removed first, since an element that is moved loses its focus.
  for (const [id, element] of old) if (!wanted.has(id)) element.remove();
  let place = parent.firstElementChild;
  parent.keyed = new Map();
  for (const [id, item] of wanted) {
    const element = old.get(id) ?? make(item);
    parent.keyed.set(id, element);
    update(element, item);
    if (element === place) place = place.nextElementSibling;
    else parent.insertBefore(element, place);
  }
}

/** A group of buttons of which one is pressed. */
export function toggle(label, options, chosen, pick) {
  const group = h("div", { class: "toggle", role: "group", "aria-label": label });
  for (const [value, name] of options) {
    const button = h("button", { type: "button", "aria-pressed": String(value === chosen) }, name);
    button.addEventListener("click", () => {
      for (const other of group.children) other.setAttribute("aria-pressed", String(other === button));
      pick(value);
    });
    group.append(button);
  }
  return group;
}

/** A share as a bar. Screen readers skip it, since the number is next to it. */
export function meter(share, kind = "", extra = "") {
  const width = `${Math.max(0, Math.min(1, share || 0)) * 100}%`;
  return h("span", { class: `meter ${extra}`, "aria-hidden": "true" }, h("i", { class: kind, style: { width } }));
}
