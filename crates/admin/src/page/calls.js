// The recent finished calls, and why some have no TPS.
import { get } from "./api.js";
import { address, callHref, href, other, same, sessionHref } from "./address.js";
import { csvButton } from "./csv.js";
import { h, text } from "./dom.js";
import { filters, goesOn, matching, names } from "./filters.js";
import { sloName, stateOf } from "./objectives.js";
import { placeOf } from "./pods.js";
import { parquetButton } from "./save.js";
import { Table } from "./table.js";
import { count, known, plural, rate, seconds, short, time, usd } from "./format.js";
import { budget, outcome, repeats, unavailable } from "./words.js";

const KEPT = 500;
const SHOWN = 30;
const PAGE = 100;
const FEW = 20;

/** A name that links to the calls with this name. */
const named = (name) => (call) => h("a", { href: other("calls", { [name]: call[name] }), title: call[name] }, short(call[name]));

const output = ({ tokens: { reported, normalised } }) => reported.output ?? normalised.output;
const input = ({ tokens: { reported, normalised } }) => reported.input ?? normalised.input;
/** Why a call has no cost. A price needs tokens. */
const noCost = (call) => (known(input(call)) || known(output(call)) ? "the model has no known price" : "no billable tokens were counted");
const gap = (call) => h("span", call.stalls > 0 ? { class: "tag warn", title: plural(call.stalls, "stall") } : {}, seconds(call.seconds.longest_gap));

const COLUMNS = [
  { id: "at", label: "Started", head: true, text: (c) => time(c.started_at, true), node: (c) => h("a", { href: callHref(c.id) }, time(c.started_at, true)) },
  { id: "model", label: "Model", clip: true, text: (c) => c.model ?? c.model_requested, why: () => "neither the request nor the response names a model" },
  { id: "outcome", label: "Outcome", text: (c) => ending(c), node: (c) => h("span", { class: `tag ${(c.stalls > 0 || c.repetition) && c.outcome === "complete" ? "warn" : outcome(c.outcome)[1]}`, title: c.repetition ? repeats(c.repetition) : null }, ending(c)) },
  { id: "upstream", label: "Upstream", clip: true, text: (c) => c.upstream, node: named("upstream") },
  { id: "tps", label: "TPS", num: true, text: (c) => rate(c.tps.output) ?? `– ${c.tps.unavailable}`, node: (c) => speed(c) },
  { id: "ttft", label: "TTFT", num: true, text: (c) => seconds(c.seconds.ttft), why: () => "no generated text was streamed" },
  { id: "gap", label: "Longest gap", num: true, text: (c) => seconds(c.seconds.longest_gap), node: (c) => gap(c), why: () => "fewer than two chunks contained tokens", hint: "The longest time between two chunks with tokens; coloured if it is a stall" },
  { id: "duration", label: "Duration", num: true, wide: true, text: (c) => seconds(c.seconds.duration) },
  { id: "tokens", label: "Output", num: true, wide: true, text: (c) => count(output(c)), why: () => "no tokens were counted" },
  { id: "cost", label: "Cost", num: true, wide: true, text: (c) => usd(c.cost_usd), why: noCost },
  { id: "agent", label: "Agent", wide: true, clip: true, text: (c) => c.agent, why: () => "the request names no agent", node: named("agent") },
  { id: "pod", label: "Pod", wide: true, clip: true, fleet: true, text: (c) => placeOf(c.pod), why: () => "the store has no pod" },
  { id: "session", label: "Session", wide: true, clip: true, text: (c) => c.session, why: () => "the request names no session", node: (c) => h("a", { href: sessionHref(c.session), title: c.session }, short(c.session)) },
];

let measure = {};
/** The settings that explain a missing TPS. */
export const keepMeasure = (settings) => (measure = settings);

function speed(call) {
  if (known(call.tps.output)) return h("span", {}, rate(call.tps.output));
  const [words, sentence] = unavailable(call.tps.unavailable, measure);
  return h("span", { class: "muted", title: sentence }, words);
}

const FRESH = 10_000; // milliseconds until the ledger contains a finished call
let fresh = [];

/** Remembers a call that has just ended, since the store may not have it yet. */
export function ended(call) {
  const now = Date.now();
  fresh = [{ call, at: now }, ...fresh.filter(({ at, call: { id } }) => at > now - FRESH && id !== call.id)].slice(0, KEPT);
}

const newestFirst = (calls) => calls.toSorted((one, other) => (one.started_at < other.started_at ? 1 : one.started_at > other.started_at ? -1 : 0));

/** The calls of the store, merged with recent calls that the store does not have yet. */
function withFresh(calls) {
  if (!goesOn() || address.params.slo) return calls;
  const [known, meant, since] = [new Set(calls.map(({ id }) => id)), matching(), Date.now() - FRESH];
  const more = fresh.filter(({ call, at }) => at > since && !known.has(call.id) && meant(call));
  return newestFirst([...more.map(({ call }) => call), ...calls]);
}

/** The newest calls that match the filters, updated as calls end. */
export class Calls {
  constructor(host) {
    this.calls = [];
    this.all = h("a", { class: "push" }, "All calls");
    host.append(h("div", { class: "head" }, this.all, csvButton("recent calls", () => this.calls.slice(0, SHOWN)), parquetButton("recent calls", filters)));
    this.table = new Table(host, {
      label: "Recent finished calls",
      tall: true,
      key: (call) => call.id,
      nothing: () => "No finished calls in this window.",
      columns: COLUMNS,
    });
    this.reasons = h("dl", { class: "reasons" });
    this.summary = h("summary");
    this.why = h("details", { hidden: true }, this.summary, this.reasons);
    host.append(this.why);
  }

  async load(current) {
    this.all.href = other("calls");
    const { calls } = await get("calls", { ...filters(), limit: PAGE });
    if (!current()) return;
    this.calls = withFresh(calls);
    this.show();
  }

  add(call) {
    if (!goesOn() || !matching()(call) || this.calls.some((known) => known.id === call.id)) return;
    this.calls = newestFirst([call, ...this.calls]).slice(0, KEPT);
    this.due ??= setTimeout(() => {
      this.due = undefined;
      this.show();
    }, 400);
  }

  show() {
    const { calls } = this;
    this.table.update(calls.slice(0, SHOWN));
    const without = new Map();
    for (const { tps } of calls) {
      if (!known(tps.output)) without.set(tps.unavailable, (without.get(tps.unavailable) ?? 0) + 1);
    }
    this.why.hidden = without.size === 0;
    const missing = [...without.values()].reduce((sum, n) => sum + n, 0);
    text(this.summary, `${count(missing)} of the last ${plural(calls.length, "call")} ${missing === 1 ? "has" : "have"} no TPS: reasons`);
    const rows = [...without].sort((one, other) => other[1] - one[1]).map(([word, n]) => {
      const [words, sentence] = unavailable(word, measure);
      return [h("dt", {}, `${words} `, h("span", { class: "muted" }, `× ${n}`)), h("dd", {}, sentence)];
    });
    const sign = [...without].join();
    if (this.sign !== sign) this.reasons.replaceChildren(...rows.flat());
    this.sign = sign;
  }
}

const ending = (call) => {
  const [words] = outcome(call.outcome);
  const kind = call.error_type === call.outcome ? null : call.error_type;
  const more = kind ?? (call.outcome === "http_error" ? call.status : null);
  return [more ? `${words}: ${more}` : words, ...(call.repetition ? ["repeats itself"] : [])].join(", ");
};

/** The state and cause of an objective in a sentence. */
function said(slo, state) {
  const { value, unit } = budget(slo.budget_remaining);
  const left = unit ? `${value} of its budget is ${unit}` : `its budget is ${value}`;
  return `${sloName(slo)} ${state ? `${state.says}: ` : "has no alert: "}${left}.${slo.cause ? ` ${slo.cause.sentence}` : ""}`;
}

/** All calls that match the filters, in pages, optionally updated as calls end. */
export class AllCalls {
  constructor(host) {
    Object.assign(this, { calls: [], next: null, slos: [] });
    this.state = h("p", { class: "finding", id: "objective" });
    this.about = h("p", { class: "note" });
    this.found = h("p", { class: "muted push", role: "status" });
    this.follow = h("input", { type: "checkbox", checked: true, on: { change: () => this.followed() } });
    host.append(h("div", { class: "head" }, h("label", { class: "squeeze" }, this.follow, " Add new calls automatically"), this.found, csvButton("calls", () => this.calls), parquetButton("calls", filters)), this.state, this.about);
    this.table = new Table(host, { label: "Finished calls, newest first", key: (call) => call.id, nothing: () => (this.next ? "No match among the newest calls. Older calls may match." : "No calls match in this window."), columns: COLUMNS });
    this.problem = h("p", { class: "note problem" });
    this.more = h("button", { type: "button", on: { click: () => this.page() } }, "Older calls");
    host.append(this.problem, h("div", { class: "pager" }, this.more));
  }

  /** Loads the calls in the address. With `again`, only newer calls are loaded. */
  async load(again = false) {
    if (again && (!this.follow.checked || !goesOn() || this.calls.length > PAGE)) return;
    this.round = (this.round ?? 0) + 1;
    const { slo } = address.params;
    this.about.replaceChildren(...(slo ? ["Calls that spent the error budget of ", h("strong", {}, slo), ", according to their records. ", h("a", { href: same({ slo: null }) }, "All calls with these filters"), " ", h("a", { href: href("now", { ...names(), slo: null, session: null, cost_unavailable: null, tps_unavailable: null }) }, "Overview with these filters")] : []));
    this.tell();
    this.follow.disabled = !goesOn();
    await this.page(true);
  }

  /** Takes changed objectives, to show the one in the address with its cause. */
  know(slos) {
    this.slos = slos;
    this.tell();
  }

  tell() {
    const { slo: name, cluster, namespace, pod } = address.params;
    const place = [cluster, namespace, pod].filter(Boolean).join("/");
    const named = this.slos.filter((slo) => slo.name === name);
    const slo = named.find((slo) => placeOf(slo.pod) === place) ?? named[0];
    const state = slo ? stateOf(slo) : null;
    this.state.className = `finding ${state?.kind ?? ""}`;
    text(this.state, slo ? said(slo, state) : "");
  }

  /** Loads the next page, or the first one. */
  async page(first = false) {
    const ours = this.round;
    try {
      let { calls, next_cursor: next } = await get("calls", { ...filters(), limit: PAGE, cursor: first ? null : this.next });
      // If few calls match, a page may be short although it is not the last.
      for (let tries = 0; next && calls.length < FEW && tries < 5; tries++) {
        const more = await get("calls", { ...filters(), limit: PAGE, cursor: next });
        calls = [...calls, ...more.calls];
        next = more.next_cursor;
      }
      if (ours !== this.round) return;
      this.calls = first ? withFresh(calls) : [...this.calls, ...calls];
      this.next = next;
      this.problem.textContent = "";
    } catch (error) {
      if (ours === this.round) this.problem.textContent = `Could not load: ${error.message}`;
    }
    this.show();
  }

  followed() {
    if (this.follow.checked) this.load(true);
  }

  /** Adds a call that has ended. With an objective in the address only the proxy can decide whether the call belongs to the
   * list. */
  add(call) {
    if (!this.follow.checked || !goesOn() || address.params.slo || !matching()(call) || this.calls.some((known) => known.id === call.id)) return;
    // The call belongs to a later page.
    if (this.next !== null && this.calls.length > 0 && call.started_at < this.calls.at(-1).started_at) return;
    this.calls = newestFirst([call, ...this.calls]);
    this.due ??= setTimeout(() => {
      this.due = undefined;
      // Reloads the newest calls, so that the page stays fast.
      if (this.calls.length > KEPT) this.load();
      else this.show();
    }, 400);
  }

  show() {
    this.table.update(this.calls);
    this.more.hidden = this.next === null;
    text(this.found, this.calls.length > 0 ? `${plural(this.calls.length, "call")}${this.next ? ", older calls available" : ""}` : "");
  }
}
