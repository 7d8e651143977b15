// What everything on the page is about: a window of time, a model, a workload.
import { h } from "./dom.js";
import { seconds } from "./format.js";

/** Name, seconds, and the length of a point of a chart. */
export const WINDOWS = [
  ["15m", 900, "15s"],
  ["1h", 3600, "1m"],
  ["6h", 21_600, "5m"],
  ["24h", 86_400, "20m"],
  ["7d", 604_800, "2h"],
  ["30d", 2_592_000, "12h"],
];

let form = null;
const chosen = () => WINDOWS.find(([name]) => name === form.elements.window.value) ?? WINDOWS[0];

export const windowSeconds = () => chosen()[1];
export const step = () => chosen()[2];

/** As parameters of the API. */
export function filters() {
  const { model, workload } = form.elements;
  const wanted = { since: chosen()[0] };
  if (model.value) wanted.model = model.value;
  if (workload.value) wanted.workload = workload.value;
  return wanted;
}

export function startFilters(element, changed) {
  form = element;
  const windows = form.querySelector(".windows");
  WINDOWS.forEach(([name], place) => {
    windows.append(h("label", {}, h("input", { type: "radio", name: "window", value: name, checked: place === 0 }), h("span", {}, name)));
  });
  form.addEventListener("change", changed);
  form.addEventListener("submit", (event) => event.preventDefault());
}

/** Windows that hold no more than a shorter one does are switched off: `kept` seconds are known. */
export function keptFor(kept) {
  const inputs = [...form.querySelectorAll("input[name=window]")];
  inputs.forEach((input, place) => {
    const shorter = WINDOWS[place - 1]?.[1] ?? 0;
    input.disabled = !input.checked && place > 0 && kept <= shorter;
    input.parentElement.title = input.disabled ? `Only the last ${seconds(kept) ?? "0 s"} are kept` : "";
  });
}

/** Names to choose from: those that were ever seen stay. */
export function offer(kind, names) {
  const select = form.elements[kind === "models" ? "model" : "workload"];
  const there = new Set([...select.options].map((option) => option.value));
  for (const name of names.filter((name) => name && !there.has(name)).sort()) select.append(h("option", { value: name }, name));
}
