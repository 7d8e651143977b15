// The filters and the time of all views. They are stored in the address; the form shows and changes them.
import { get } from "./api.js";
import { FILTERS, OF_PODS, address, change, inSeconds, same } from "./address.js";
import { byId, h, keyed, text } from "./dom.js";
import { seconds, short, time } from "./format.js";
import { nameIn, userName } from "./names.js";
import { OUTCOMES } from "./words.js";

const WINDOWS = ["15m", "1h", "6h", "24h", "7d", "30d"];
/** The possible steps of charts in seconds, and the largest number of points. */
const STEPS = [1, 5, 15, 60, 300, 1200, 7200, 43_200, 86_400, 604_800];
const POINTS = 90;
const EXTRA = ["slo", "session", "cost_unavailable", "tps_unavailable"]; // filters that only calls have
/** Filters that are always visible. The others are in "More filters". */
const OFTEN = ["model", "workload", "outcome"];
/** Filters whose options are loaded only when "More filters" is opened. */
const SELDOM = FILTERS.filter((name) => ![...OFTEN, "upstream", "route"].includes(name));
const LABELS = { slo: "spent budget of", outcome: "outcome", tool: "tools", cost_unavailable: "no cost:", tps_unavailable: "no TPS:" };
/** The label of a filter. */
export const label = (name) => LABELS[name] ?? name.replaceAll("_", " ");
/** The capitalized label of a filter. */
export const heading = (name) => label(name).replace(/^./, (letter) => letter.toUpperCase());

let form = null;

/** Whether the page shows a fleet. */
export const inFleet = () => document.body.dataset.fleet === "";

/** The time that is shown, in seconds since 1970; `to` is null if the time continues. */
export function span(now = Date.now() / 1000) {
  const { since = WINDOWS[0], from, to } = address.params;
  const begin = from ? Date.parse(from) / 1000 : now - inSeconds(since);
  const end = to ? Date.parse(to) / 1000 : null;
  return { from: begin, to: end, length: (end ?? now) - begin };
}

export const step = () => STEPS.find((step) => span().length / step <= POINTS) ?? STEPS.at(-1);
/** Whether present events belong to the time that is shown. */
export const goesOn = () => !address.params.to;

/** The filters without the time, as parameters of the API. */
export function names() {
  const of = [...FILTERS, ...EXTRA].filter((name) => address.params[name] !== undefined);
  return Object.fromEntries(of.map((name) => [name, address.params[name]]));
}

/** Filters and time, as parameters of the API. */
export function filters() {
  const { since = WINDOWS[0], from, to } = address.params;
  return from ? { since: from, until: to, ...names() } : { since, ...names() };
}

/** The seconds between a comparison time and the time that is shown. */
export const backBy = (against) => (against === "before" ? span().length : inSeconds(against));

/** The filters with the comparison time, as parameters of the API. */
export function filtersAgainst(against) {
  const { from, to, length } = span();
  const back = backBy(against);
  const written = (at) => new Date((at - back) * 1000).toISOString();
  return { ...names(), since: written(from), until: written(to ?? from + length) };
}

/** How to read the value of a filter from a call whose record has no member with the filter's name. */
const ELSEWHERE = { model: (call) => call.model ?? call.model_requested, tool: (call) => call.tools, tps_unavailable: (call) => call.tps.unavailable, cluster: (call) => call.pod?.cluster, namespace: (call) => call.pod?.namespace, pod: (call) => call.pod?.name };
/** The call's value of a filter. */
export const valueOf = (call, name) => (name in ELSEWHERE ? ELSEWHERE[name](call) : call[name]);

/** A test whether a call is within the time and matches the filters, as far as its record shows. */
export function matching() {
  const wanted = names();
  const { from } = span();
  return (call) =>
    Date.parse(call.started_at) / 1000 >= from &&
    Object.entries(wanted).every(([name, value]) => {
      if (name === "tool") return call.tools === value || (call.tools ?? "").split("+").includes(value);
      if (name === "outcome") return outcomes(value).includes(call.outcome);
      return name === "slo" || valueOf(call, name) === value;
    });
}

const outcomes = (value) => value.split(",").flatMap((word) => (word === "failed" ? Object.keys(OUTCOMES).filter((outcome) => !["complete", "client_cancelled"].includes(outcome)) : [word]));

export function startFilters(element) {
  form = element;
  const windows = byId("windows");
  for (const name of WINDOWS) windows.append(h("label", {}, h("input", { type: "radio", name: "window", value: name }), h("span", {}, name)));
  const more = FILTERS.filter((name) => !OFTEN.includes(name)).map((name) => h("label", { class: OF_PODS.includes(name) ? "of-fleet" : null }, `${heading(name)} `, h("select", { name }, h("option", { value: "" }, "all"))));
  byId("more").querySelector(".more").prepend(...more);
  const { outcome } = form.elements;
  for (const [value, label] of [["failed", "any failure"], ...Object.entries(OUTCOMES).map(([word, [label]]) => [word, label])]) outcome.append(h("option", { value }, label));
  form.addEventListener("change", ({ target }) => {
    if (target.name === "window") change({ since: target.value === WINDOWS[0] ? null : target.value, from: null, to: null });
    else if ([...FILTERS, ...EXTRA].includes(target.name)) change({ [target.name]: target.value || null });
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    range();
  });
  byId("more").addEventListener("toggle", () => byId("more").open && offerNames(SELDOM));
}

/** Applies the time range of the form. */
function range() {
  const { from, to } = form.elements;
  const written = (input) => (input.value ? new Date(input.value).toISOString() : null);
  to.setCustomValidity(from.value && to.value && from.value >= to.value ? "The end must be after the start" : "");
  if (!form.reportValidity() || !from.value) return;
  change({ since: null, from: written(from), to: written(to) });
}

/** An instant in local time, in the format of the input element. */
const local = (instant) => (instant ? new Date(Date.parse(instant) - new Date(instant).getTimezoneOffset() * 60_000).toISOString().slice(0, 19) : "");

/** Shows the filters of the address. */
export function showFilters() {
  const { params, view } = address;
  for (const input of form.querySelectorAll("input[name=window]")) input.checked = !params.from && input.value === (params.since ?? WINDOWS[0]);
  for (const name of ["from", "to"]) form.elements[name].value = local(params[name]);
  for (const name of [...FILTERS, ...EXTRA]) {
    const select = form.elements[name];
    if (!select) continue;
    if (params[name]) offer(name, [params[name]]);
    select.value = params[name] ?? "";
  }
  byId("of-calls").hidden = view !== "calls";
  const active = [...FILTERS, ...EXTRA].filter((name) => params[name]).map((name) => ({ name, says: `${label(name)} ${words(name, params[name])}`, without: { [name]: null } }));
  const { from, to } = span();
  if (params.from) active.unshift({ name: "time", says: `${time(from * 1000)} to ${to ? time(to * 1000) : "now"}`, without: { from: null, to: null } });
  else if (!WINDOWS.includes(params.since ?? WINDOWS[0])) active.unshift({ name: "time", says: `the last ${seconds(inSeconds(params.since))}`, without: { since: null } });
  byId("active").hidden = active.length === 0;
  keyed(byId("active"), active, ({ name }) => name, () => h("li", {}, h("a", {}, h("span"), h("span", { "aria-hidden": "true" }, " ✕"))), (item, { says, without }) => {
    const [link] = item.children;
    link.setAttribute("href", same(without));
    link.setAttribute("aria-label", `Remove filter: ${says}`);
    text(link.firstChild, says);
  });
  if (FILTERS.some((name) => !OFTEN.includes(name) && params[name])) byId("more").open = true;
}

const words = (name, value) => (name === "outcome" ? value.split(",").map((word) => OUTCOMES[word]?.[0] ?? word).join(" or ") : short(nameIn(name, value)));

/** The start of a curve. `earliest` is the first step with a call, or `Infinity`. A recent start is shown from its
 * beginning, not at the edge of an empty day. */
export const fromFirst = (earliest, step, start, end) => (earliest === Infinity ? start : Math.max(start, Math.min(earliest - step, end - (end - start) / 5)));

/** Shows only the part of a curve between two instants in seconds. */
export const zoom = (from, to) => change({ since: null, from: second(from), to: second(Math.max(to, from + 1)) });
const second = (at) => new Date(Math.round(at) * 1000).toISOString().replace(".000Z", "Z");

/** Disables windows that contain no more than a shorter one. `kept` is the number of seconds that are stored. */
export function keptFor(kept) {
  const inputs = [...form.querySelectorAll("input[name=window]")];
  inputs.forEach((input, place) => {
    const shorter = place > 0 ? inSeconds(WINDOWS[place - 1]) : 0;
    input.disabled = !input.checked && place > 0 && kept <= shorter;
    input.parentElement.title = input.disabled ? `Only the last ${seconds(kept) ?? "0 s"} are stored` : "";
  });
}

/** Adds options to a filter. Existing options are kept. */
export function offer(filter, names) {
  const select = form.elements[filter];
  const there = new Set([...select.options].map((option) => option.value));
  for (const name of names.filter((name) => name && !there.has(name)).sort()) select.append(h("option", { value: name }, short(nameIn(filter, name))));
}

/** Updates the options of users after their names changed. */
export function renameUsers() {
  for (const option of form.elements.user.options) if (option.value) text(option, short(userName(option.value)));
}

let figuresAsked;
let figures = new Promise((asked) => (figuresAsked = asked));
/** Takes the requests of the view, which have priority: the names of users and tools take seconds for a long time. */
export function figuresFirst(asked) {
  figures = Promise.resolve(asked).catch(() => {});
  figuresAsked(figures);
}

/** Loads the options of some filters for the time that is shown. The requests are sequential, since the proxy answers two
 * requests of an address at a time and the next view needs some of them. */
export async function offerNames(some) {
  const { since, until } = filters();
  await figures;
  for (const by of some.filter((by) => inFleet() || !OF_PODS.includes(by))) {
    try {
      const { groups } = await get("groups", { by, since, until, limit: 200 });
      offer(by, groups.map(({ name }) => name));
    } catch (error) {
      console.debug("names:", error.message);
    }
  }
}
