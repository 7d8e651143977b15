// Keyboard shortcuts, and a list of them. They can be disabled, since other software may also use single letters.
import { other } from "./address.js";
import { byId, h } from "./dom.js";

const STORED = "tokengauge-keys";
/** The milliseconds after `g` within which a letter selects a view. */
const SOON = 1500;
const GO = { n: ["now", "Overview"], s: ["sessions", "Sessions"], c: ["calls", "Calls"], m: ["costs", "Costs"], u: ["upstreams", "Upstreams"], o: ["connect", "Connect"] };

let on = stored() !== "off";
/** The event time at which `g` was pressed. A busy page receives keys late, so the present time would be wrong. */
let after = -Infinity;

function stored() {
  try {
    return localStorage.getItem(STORED);
  } catch {
    return null;
  }
}

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
    // the setting is kept until the page is closed
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

/** Follows a link as if it had been clicked. */
function follow(href) {
  const link = h("a", { href, hidden: true });
  document.body.append(link);
  link.click();
  link.remove();
}
