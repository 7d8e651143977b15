// Keys for those who watch all day, and a list of them. They can be switched off, as other
// software may use letters, too.
import { other } from "./address.js";
import { byId, h } from "./dom.js";

const STORED = "tokengauge-keys";
/** Within this many milliseconds after `g` a letter names a view. */
const SOON = 1500;
const GO = { n: ["now", "Overview"], s: ["sessions", "Sessions"], c: ["calls", "Calls"], m: ["costs", "Costs"], u: ["upstreams", "Upstreams"], o: ["connect", "Connect"] };

let on = stored() !== "off";
/** When `g` was pressed, by the clock of events: a page that is busy hears of keys late. */
let after = -Infinity;

function stored() {
  try {
    return localStorage.getItem(STORED);
  } catch {
    return null;
  }
}

/** Puts the list of keys together. */
export function startKeys() {
  const dialog = byId("keys");
  const rows = [["?", "Show this list"], ["/", "Focus the search or the filters"], ...Object.entries(GO).map(([key, [, name]]) => [`g ${key}`, name]), ["1 … 6", "Select a time window, the shortest first"], ["Esc", "Close the dialog"]];
  const active = h("input", { type: "checkbox", checked: on, on: { change: () => keep(active.checked) } });
  const close = h("button", { type: "button", class: "primary", on: { click: () => dialog.close() } }, "Close");
  dialog.append(h("h2", { id: "keys-title" }, "Keyboard shortcuts"), h("dl", { class: "reasons" }, rows.flatMap(([key, does]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, does)])), h("label", { class: "squeeze" }, active, " Enable shortcuts"), h("p", { class: "note" }, "Drag over a chart to zoom in. Lists and tables that have the focus scroll with the arrow keys."), close);
  byId("show-keys").addEventListener("click", () => dialog.showModal());
  addEventListener("keydown", pressed);
}

function keep(wanted) {
  on = wanted;
  try {
    localStorage.setItem(STORED, on ? "on" : "off");
  } catch {
    // it lasts as long as the page
  }
}

function pressed(event) {
  const typing = event.target.closest?.("input:not([type=radio], [type=checkbox]), select, textarea, dialog");
  if (!on || typing || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  const went = event.timeStamp - after < SOON && GO[event.key];
  after = event.key === "g" ? event.timeStamp : -Infinity;
  if (went) follow(other(went[0]));
  else if (event.key === "?") byId("keys").showModal();
  else if (event.key === "/") (document.querySelector(".view:not([hidden]) input[type=search]") ?? document.querySelector("#filters:not([hidden]) select"))?.focus();
  else if (/^[1-6]$/.test(event.key)) document.querySelectorAll("#filters:not([hidden]) #windows input:not(:disabled)")[event.key - 1]?.click();
  else return;
  event.preventDefault();
}

/** As if a link had been pressed. */
function follow(href) {
  const link = h("a", { href, hidden: true });
  document.body.append(link);
  link.click();
  link.remove();
}
