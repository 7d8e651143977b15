// The view of one call: its figures, its phases, and links to other calls around it.
import { get } from "./api.js";
import { FILTERS, callHref, href, other, sessionHref } from "./address.js";
import { h } from "./dom.js";
import { heading, valueOf } from "./filters.js";
import { count, known, percent, plural, rate, seconds, time, usd } from "./format.js";
import { userName } from "./names.js";
import { analysisFacts, promptParts } from "./prompt.js";
import { scoreFacts } from "./scores.js";
import { PHASES, outcome, repeats, unavailable } from "./words.js";

const AROUND = 300; // seconds before and after the call

export class Call {
  constructor(host) {
    this.host = host;
  }

  async open(id, measure) {
    this.id = id;
    this.failed = false;
    try {
      const answer = await get(`calls/${encodeURIComponent(id)}`);
      if (this.id === id) this.host.replaceChildren(frame(id, ...parts(answer, measure)));
    } catch (error) {
      // The call may have just ended, so the store may not have it yet.
      this.failed = true;
      if (this.id === id) this.host.replaceChildren(frame(id, h("p", { class: "note problem" }, `Could not load: ${error.message}`)));
    }
  }
}

const frame = (id, ...content) =>
  h("section", { class: "panel", "aria-labelledby": "call-title" }, h("div", { class: "head" }, h("h2", { id: "call-title" }, "Call ", h("code", {}, id)), h("a", { class: "push", href: other("calls") }, "← All calls")), ...content);

function parts({ call, phases, store, repetition_cost_usd: repeated }, measure) {
  const [words, kind] = outcome(call.outcome);
  const failed = kind === "bad";
  const facts = [
    ["Outcome", h("span", { class: `tag ${kind}` }, [words, call.error_type].filter(Boolean).join(": ")), call.status ? `status ${call.status}` : null],
    ["Started", time(call.started_at, true), call.started_at],
    ["Duration", seconds(call.seconds.duration)],
    ["TTFT", seconds(call.seconds.ttft) ?? "–"],
    ["TPS", known(call.tps.output) ? `${rate(call.tps.output)} tok/s` : "–", known(call.tps.output) ? "while decoding" : unavailable(call.tps.unavailable, measure)[1]],
    ["Stalls", call.stalls > 0 ? count(call.stalls) : null],
    ["Longest gap", seconds(call.seconds.longest_gap)],
    ["Input tokens", count(call.tokens.reported.input ?? call.tokens.normalised.input), call.tokens.reported.cached_input ? `${count(call.tokens.reported.cached_input)} cached` : null],
    ["Output tokens", count(call.tokens.reported.output ?? call.tokens.normalised.output), call.finish_reasons.join(", ") || null],
    ["Repetition", call.repetition ? repeats(call.repetition) : null, call.repetition ? repetition(call.repetition, repeated) : null],
    ["Cost", usd(call.cost_usd), call.cost_source?.replaceAll("_", " ")],
    ...scoreFacts(call.scores),
    ["Engine prompt time", seconds(call.engine?.prompt_seconds), "reported by the engine"],
    ["Model", of("model", call.model ?? call.model_requested), call.model && call.model_requested && call.model !== call.model_requested ? `requested: ${call.model_requested}` : null],
    ["Upstream", of("upstream", call.upstream), call.endpoint],
    ["Route", of("route", call.route), call.path],
    ["Workload", of("workload", call.workload)],
    ["Agent", of("agent", call.agent), call.parent_agent ? `child of ${call.parent_agent}` : null],
    ["Session", call.session ? h("a", { href: sessionHref(call.session) }, call.session) : null],
    ["User", of("user", call.user, userName(call.user))],
    ["Experiment", of("experiment", call.experiment), call.variant],
    ...FILTERS.filter((name) => !SHOWN.includes(name)).map((name) => [heading(name), of(name, valueOf(call, name))]),
    ["Trace", call.trace_id ? h("code", {}, call.trace_id) : null],
    ["Response", call.response_id ? h("code", {}, call.response_id) : null],
    ["Bytes", `${count(call.bytes.request)} in, ${count(call.bytes.response)} out`],
    ...analysisFacts(call, (id) => h("a", { href: callHref(id) }, h("code", {}, id))),
    ["Warm-up", call.warm_up ? "the upstream had just started" : null],
  ];
  const items = facts.filter(([, value]) => value !== null && value !== undefined).map(([name, value, more]) => h("div", {}, h("dt", {}, name), h("dd", {}, value), more ? h("dd", { class: "muted small" }, more) : null));
  return [...bar(phases, failed, call), h("dl", { class: "facts" }, items), ...promptParts(call.prompt), around(call, store)];
}

/** The start and the cost of a repetition. */
const repetition = ({ start, share }, cost) => [`starts at token ${count(start)}`, `${percent(share)} of the output`, known(cost) ? `${usd(cost)} for the repeated part` : null].filter(Boolean).join(", ");

/** Filters that have a separate line. */
const SHOWN = ["outcome", "model", "upstream", "route", "workload", "agent", "user", "experiment"];

const of = (name, value, words = value) => (value ? h("a", { href: href("calls", { [name]: value }) }, words) : null);

/** The call's phases to scale, with their durations. The record does not say in which phase the longest gap was. */
function bar(phases, failed, { stalls, seconds: { longest_gap: gap } }) {
  const all = phases.at(-1)?.end ?? 0;
  if (all <= 0) return [];
  const lengths = phases.map(({ name, start, end }) => ({ name: name in PHASES ? name : "other", length: end - start }));
  const parts = lengths.map(({ name, length }) => h("i", { class: failed ? "failed" : null, style: { width: `${(length / all) * 100}%`, background: `var(--${name})` } }));
  const keys = lengths.map(({ name, length }) => h("li", {}, h("i", { class: "box", title: PHASES[name], style: { background: `var(--${name})` } }), name, h("b", {}, seconds(length)), percent(length / all)));
  const silent = stalls > 0 ? h("p", { class: "note stalled" }, h("span", { class: "tag warn" }, plural(stalls, "stall")), ` The longest gap without a token was ${seconds(gap)}, ${percent(gap / all)} of the call.`) : null;
  return [h("div", { class: "split", "aria-hidden": "true" }, parts), h("ul", { class: "keys phases", "aria-label": "Phases of the call" }, keys), ...(silent ? [stalledBar(gap, all), silent] : [])];
}

/** The length of the longest gap relative to the call. */
const stalledBar = (gap, all) => h("div", { class: "split gap", "aria-hidden": "true" }, h("i", { class: "hatched", style: { width: `${Math.min(1, gap / all) * 100}%` } }));

/** Links to what happened around the call. */
function around(call, store) {
  const begin = Date.parse(call.started_at);
  const end = begin + (call.seconds.duration ?? 0) * 1000;
  const at = (ms) => new Date(ms).toISOString();
  const then = { from: at(begin - AROUND * 1000), to: end + AROUND * 1000 < Date.now() ? at(end + AROUND * 1000) : null };
  return h(
    "p",
    { class: "note" },
    "Five minutes before and after: ",
    h("a", { href: href("now", { ...then, upstream: call.upstream }) }, `overview of ${call.upstream}`),
    ", ",
    h("a", { href: href("calls", { ...then, upstream: call.upstream }) }, `calls of ${call.upstream}`),
    ", ",
    h("a", { href: href("calls", { ...then, outcome: "failed" }) }, "all failed calls"),
    store === "memory" ? ". The call is in memory until newer calls replace it." : ".",
  );
}
