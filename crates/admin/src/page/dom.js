// Elements without markup: whatever a name from the wire holds, it stays text.

/** An element. Attributes as written; `on` takes listeners, `style` goes by the CSSOM,
 *  which the content-security-policy allows. */
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

/** Sets text only where it differs: screen readers hear changes, selections survive. */
export function text(element, value) {
  const wanted = value ?? "";
  if (element.textContent !== wanted) element.textContent = wanted;
}

/** A number that is not known, and why. */
export const unknown = (why = "unknown") =>
  h("span", { class: "unknown", title: why }, h("span", { "aria-hidden": "true" }, "–"), h("span", { class: "vh" }, why));

let pressed = false; // a button of the mouse, or a finger
const waiting = new Map(); // what is to be shown when it is released, by whose it is

addEventListener("pointerdown", ({ button }) => (pressed ||= button === 0), true);
for (const end of ["pointerup", "pointercancel", "blur"]) addEventListener(end, released, true);

function released({ type, target }) {
  if (!pressed || (type === "blur" && target !== window)) return;
  pressed = false;
  // The click comes first.
  setTimeout(() => {
    const all = [...waiting];
    waiting.clear();
    all.forEach(([owner, show]) => unpressed(owner, show));
  });
}

/** Shows something of `owner`, which may move what is on the page; while a button is pressed not before it is released:
 *  a click on what has moved away meanwhile would be lost. */
export function unpressed(owner, show) {
  if (pressed) return void waiting.set(owner, show);
  waiting.delete(owner);
  show();
}

/** Makes the children of `parent` those of `items`, in order; an item that was there
 *  keeps its element, and with it focus and selection. */
export function keyed(parent, items, key, make, update) {
  unpressed(parent, () => arrange(parent, items, key, make, update));
}

function arrange(parent, items, key, make, update) {
  const wanted = new Map(items.map((item) => [key(item), item]));
  const old = parent.keyed ?? new Map();
  // What goes goes first: an element that is moved loses its focus.
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

/** Buttons of which one is pressed. */
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

/** The share of a whole as a bar. Says nothing to a screen reader: the number beside it does. */
export function meter(share, kind = "", extra = "") {
  const width = `${Math.max(0, Math.min(1, share || 0)) * 100}%`;
  return h("span", { class: `meter ${extra}`, "aria-hidden": "true" }, h("i", { class: kind, style: { width } }));
}
