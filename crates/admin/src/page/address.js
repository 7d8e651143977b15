// The address of the page: the path is the view; the query has filters, time, order and search. A copied link opens the
// same view, and the browser's back and forward work.
import { BASE } from "./api.js";
import { DIMENSIONS, NAMES } from "./dimensions.js";
import { OUTCOMES } from "./words.js";

const DURATION = /^[1-9]\d{0,5}[smhdw]$/;
const INSTANT = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,9})?)?Z$/;
const SECONDS = { s: 1, m: 60, h: 3600, d: 86_400, w: 604_800 };

/** The seconds of a duration such as `15m`. */
export const inSeconds = (duration) => Number.parseInt(duration, 10) * SECONDS[duration.at(-1)];

// Rules of parameters: null for a valid value, otherwise what the value must be.
const name = (value) => (value.length > 0 && value.length <= 200 ? null : "must have 1 to 200 characters");
const duration = (value) => (DURATION.test(value) ? null : "must be a duration such as 90s, 15m, 6h or 7d");
const instant = (value) => (INSTANT.test(value) && !Number.isNaN(Date.parse(value)) ? null : "must be an instant such as 2026-01-31T09:30:00Z");
const words = (all) => (value) => (all.includes(value) ? null : `must be one of ${all.join(", ")}`);
const several = (all) => (value) => (value.split(",").every((word) => all.includes(word)) ? null : `must be one or more of ${all.join(", ")}`);
const cursor = (value) => (value.length > 0 && value.length <= 1024 ? null : "must have 1 to 1024 characters");
const page = (value) => (/^[1-9]\d{0,5}$/.test(value) ? null : "must be a number of at least 1");
const order = (value) => (/^-?[a-z_0-9]{1,40}$/.test(value) ? null : "must be a column, with a leading - for descending order");

/** The filters of calls, by the names of their parameters. */
export const FILTERS = [...NAMES, "outcome"];
export { DIMENSIONS };
/** Filters that only a fleet has. */
export const OF_PODS = ["cluster", "namespace", "pod"];
/** The times that a time can be compared with. */
export const AGAINST = { before: "the previous period", "1d": "one day earlier", "7d": "one week earlier" };

const time = { since: duration, from: instant, to: instant };
const filters = { ...Object.fromEntries(FILTERS.map((filter) => [filter, name])), outcome: several([...Object.keys(OUTCOMES), "failed"]) };
const dimension = words(Object.keys(DIMENSIONS));

/** The parameters of each view. */
const KNOWN = {
  now: { ...time, ...filters, by: dimension, cost: dimension, sort: order, streams: order, against: words(Object.keys(AGAINST)), speeds: words(["heat"]) },
  sessions: { ...time, ...filters, q: name, sort: order, rows: words(["25", "50", "100", "250"]), cursor, page },
  session: { with: name },
  calls: { ...time, ...filters, session: name, slo: name, cost_unavailable: name, tps_unavailable: name },
  costs: { ...time, ...filters, by: dimension, of: words(["cost", "tokens"]), sort: order },
  upstreams: { ...time, ...filters, sort: order },
};
const known = (view) => KNOWN[view] ?? {};
/** The view whose path in index.html is `path`. A path with an id ends with `/{id}`. */
const viewAt = (path) => document.querySelector(`.view[data-path="${CSS.escape(path)}"]`)?.id.slice("view-".length);

/** The address that is shown: `params` has the valid parameters of the query, `problems` describes the others. */
export const address = { view: "now", id: null, params: {}, problems: [] };
let carried = {}; // filters and time that are kept while a view without them is open
let changed = () => {};
let shown = "";

/** The view and id of a path; null if it is not the path of a view. */
function place(path) {
  if (!path.startsWith(BASE.pathname)) return null;
  const [folder, id, ...more] = path.slice(BASE.pathname.length).split("/");
  if (more.length > 0) return null;
  if (id === undefined && folder === "") return { view: "now", id: null };
  const view = viewAt(id ? `${folder}/{id}` : folder);
  return view ? { view, id: id ? decoded(id) : null } : null;
}

/** Decodes an id. An id that was typed by hand may be invalid and is kept as it is. */
function decoded(id) {
  try {
    return decodeURIComponent(id);
  } catch {
    return id;
  }
}

function read() {
  const { view, id } = place(location.pathname) ?? { view: "now", id: null };
  const [params, problems] = [{}, []];
  for (const [key, value] of new URLSearchParams(location.search)) {
    const rule = Object.hasOwn(known(view), key) ? known(view)[key] : null;
    const wrong = !rule ? "is not a parameter of this view" : Object.hasOwn(params, key) ? "is given more than once" : rule(value);
    if (wrong) problems.push(`\`${key}\` ${wrong}`);
    else params[key] = value;
  }
  const drop = (key, why) => {
    problems.push(`\`${key}\` ${why}`);
    delete params[key];
  };
  if (params.to && !params.from) drop("to", "needs `from`");
  if (params.from && params.since) drop("since", "and `from` exclude each other");
  if (params.from && params.to && Date.parse(params.from) >= Date.parse(params.to)) {
    drop("to", "must be later than `from`");
    delete params.from;
  }
  Object.assign(address, { view, id, params, problems });
  if ("since" in known(view)) carried = common(params);
}

/** The parameters that other views also have. */
const common = (params) => Object.fromEntries(Object.entries(params).filter(([key]) => key in time || FILTERS.includes(key)));

/** The path and query of a view, without parameters that are null. */
export function href(view, params = {}, id = null) {
  const path = (document.getElementById(`view-${view}`)?.dataset.path ?? "").replace("{id}", () => encodeURIComponent(id));
  const query = new URLSearchParams(Object.entries(params).filter(([, value]) => value !== null && value !== undefined && value !== ""));
  return `${BASE.pathname}${path}${query.size > 0 ? `?${query}` : ""}`;
}

/** Another view with the same filters and time, changed by `more`. A value of null removes a parameter. */
export function other(view, more = {}) {
  const kept = Object.entries({ ...carried, ...more }).filter(([key]) => key in known(view));
  return href(view, Object.fromEntries(kept));
}
/** The same view with changed parameters. A list then starts with its first page. */
export function same(patch) {
  const { cursor: _, page: __, ...params } = address.params;
  return href(address.view, { ...params, ...patch }, address.id);
}
export const callHref = (id) => href("call", {}, id);
export const sessionHref = (id) => href("session", {}, id);

/** Changes parameters of the present view. */
export function change(patch, { replace = false } = {}) {
  move(same(patch), replace);
}

function move(to, replace) {
  if (replace) history.replaceState(null, "", to);
  else history.pushState(null, "", to);
  arrive(false);
}

function arrive(back) {
  const now = location.pathname + location.search;
  if (now === shown) return; // only the fragment changed
  shown = now;
  const before = `${address.view}/${address.id}`;
  read();
  changed({ another: `${address.view}/${address.id}` !== before, back });
}

/** Calls `listener({another, back})` whenever the address changes. */
export function startAddress(listener) {
  // Older versions had the address in the fragment.
  if (location.hash.startsWith("#/")) history.replaceState(null, "", BASE.pathname + location.hash.slice(2));
  changed = listener;
  shown = location.pathname + location.search;
  read();
  addEventListener("popstate", () => arrive(true));
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href]");
    if (!link || event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey || link.target || link.download) return;
    const url = new URL(link.href);
    if (url.origin !== location.origin || !place(url.pathname)) return;
    // The browser handles links within the view.
    if (url.hash && url.pathname + url.search === shown) return;
    event.preventDefault();
    move(url.pathname + url.search + url.hash, false);
  });
}
