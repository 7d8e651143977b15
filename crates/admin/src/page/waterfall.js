// The waterfall of calls: a table whose last column draws the phases over time.
import { callHref } from "./address.js";
import { h } from "./dom.js";
import { count, known, percent, rate, seconds, usd } from "./format.js";
import { placeOf } from "./pods.js";
import { PHASES, WAITS, outcome, toolNames } from "./words.js";

const LONG = 8; // waits between calls above this number of seconds can be shortened
const SHORTENED = 2;

export class Waterfall {
  constructor(host) {
    this.open = new Set();
    this.squeeze = h("input", { type: "checkbox", on: { change: () => this.draw() } });
    this.option = h("label", { class: "squeeze muted" }, this.squeeze, " shorten long waits between calls");
    this.ticks = h("span", { class: "ticks", "aria-hidden": "true" });
    const heads = [["Agent and model"], ["Start", "num wide"], ["Wait", "num wide"], ["Duration", "num"], ["TTFT", "num wide"], ["TPS", "num wide"], ["Output", "num wide"], ["Cost", "num wide"]];
    this.body = h("tbody");
    const bars = h("th", { scope: "col" }, h("span", { class: "vh" }, "Phases over time"), this.ticks);
    const head = h("tr", {}, heads.map(([label, kind]) => h("th", { scope: "col", class: kind ?? null }, label)), bars);
    const table = h("table", { class: "fall" }, h("caption", { class: "vh" }, "Calls of the session in the order of their start, children under their parents"), h("thead", {}, head), this.body);
    const key = (sign, words) => h("li", { hidden: true }, sign, words);
    this.onPath = key(h("i", { class: "box path" }), "on the critical path");
    this.failed = key(h("b", { class: "problem", "aria-hidden": "true" }, "✕"), "failed");
    host.append(this.option, h("ul", { class: "keys", "aria-label": "Legend" }, this.onPath, this.failed), h("div", { class: "scroll", role: "region", "aria-label": "Waterfall of the session's calls", tabindex: "0" }, table));
  }

  /** `path` has the ids of the calls on the critical path. */
  update(session, calls, path) {
    const long = calls.reduce((sum, call) => sum + ((call.wait_before ?? 0) > LONG ? call.wait_before : 0), 0);
    this.option.hidden = long === 0;
    // A session that mostly waited would otherwise show only waits.
    if (this.session?.id !== session.id) this.squeeze.checked = long > session.seconds.wall * 0.4;
    Object.assign(this, { session, calls, path, waits: waitsOf(calls) });
    this.draw();
  }

  draw() {
    this.onPath.hidden = this.path.size === 0;
    this.failed.hidden = !this.calls.some(failed);
    this.scale = new Scale(this.calls, this.squeeze.checked);
    const ticks = this.scale.ticks();
    this.ticks.replaceChildren(...ticks.map(([at, label]) => h("span", { style: { left: at } }, label)));
    const depths = generations(this.calls);
    this.body.replaceChildren(...this.calls.flatMap((call) => this.rows(call, depths.get(call.agent) ?? 0)));
  }

  rows(call, depth) {
    const open = this.open.has(call.id);
    const button = h("button", { type: "button", "aria-expanded": String(open), on: { click: () => this.toggle(call) } }, this.name(call));
    const end = call.phases.at(-1)?.end ?? call.offset;
    const wait = this.waits.get(call.id);
    const cell = (value, kind) => h("td", { class: kind }, value ?? "–");
    const row = h(
      "tr",
      { "data-call": call.id, class: this.path.has(call.id) ? "on-path" : null },
      h("th", { scope: "row", class: depth > 0 ? "child" : null, style: { "padding-left": `${depth * 16}px` } }, depth > 0 ? h("span", { "aria-hidden": "true" }, "↳ ") : null, failed(call) ? h("b", { class: "problem", title: outcome(call.outcome)[0] }, h("span", { "aria-hidden": "true" }, "✕ "), h("span", { class: "vh" }, "failed: ")) : null, call.retry_of ? h("span", { title: "Repeats a request that had failed" }, h("span", { "aria-hidden": "true" }, "↻ "), h("span", { class: "vh" }, "retry: ")) : null, button, call.tools ? h("span", { class: "muted small called" }, ` → ${toolNames(call.tools)}`) : null),
      cell(seconds(call.offset), "num wide"),
      h("td", { class: "num wide", title: wait ? waitName(wait) : null }, wait ? seconds(wait.seconds) : ""),
      cell(seconds(end - call.offset), "num"),
      cell(seconds(call.ttft), "num wide"),
      cell(rate(call.tps), "num wide"),
      cell(count(call.tokens.output), "num wide"),
      cell(usd(call.cost_usd), "num wide"),
      h("td", { class: "bars" }, this.lane(call)),
    );
    return open ? [row, h("tr", { class: "more" }, h("td", { colspan: "9" }, detail(call, this.path.has(call.id))))] : [row];
  }

  /** The name of a row, which has the agent if there are several. */
  name(call) {
    const agent = this.session.agents.length > 1 ? call.agent : null;
    const pod = new Set(this.calls.map(({ pod: of }) => placeOf(of))).size > 1 ? call.pod?.name : null;
    return [agent, call.model, pod].filter(Boolean).join(" · ") || call.agent || call.route;
  }

  toggle(call) {
    if (!this.open.delete(call.id)) this.open.add(call.id);
    this.draw();
    this.body.querySelector(`[data-call="${CSS.escape(call.id)}"] button`)?.focus();
  }

  lane(call) {
    const place = (start, end) => ({ left: this.scale.at(start), width: this.scale.width(start, end) });
    const parts = call.phases.map((phase) => h("i", { class: failed(call) ? "failed" : null, title: `${phase.name} ${seconds(phase.end - phase.start)}`, style: { ...place(phase.start, phase.end), background: `var(--${phase.name in PHASES ? phase.name : "other"})` } }));
    const wait = this.waits.get(call.id);
    const before = wait ? h("i", { class: `hatched ${wait.kind}`, title: `${seconds(wait.seconds)} ${waitName(wait)}`, style: place(call.offset - wait.seconds, call.offset) }) : null;
    return h("div", { class: "lane", "aria-hidden": "true" }, before, parts);
  }
}

/** The time before each call in which its agent had no call: as the proxy recorded it, otherwise since the agent's call before. */
function waitsOf(calls) {
  const [ends, waits] = [new Map(), new Map()];
  for (const call of calls) {
    const before = ends.has(call.agent) ? call.offset - ends.get(call.agent) : call.wait_before;
    const wait = call.wait ?? { kind: "other", seconds: before, tools: [] };
    if (wait.seconds > 0) waits.set(call.id, wait);
    ends.set(call.agent, Math.max(ends.get(call.agent) ?? 0, call.phases.at(-1)?.end ?? call.offset));
  }
  return waits;
}

const waitName = ({ kind, tools }) => [WAITS[kind] ?? kind, tools.join(", ")].filter(Boolean).join(": ");

const failed = (call) => outcome(call.outcome)[1] === "bad";

function detail(call, onPath) {
  const [words, kind] = outcome(call.outcome);
  const facts = [
    ["Outcome", h("span", { class: `tag ${kind}` }, call.error_type ? `${words}: ${call.error_type}` : words)],
    ["Status", call.status],
    ["Route", call.route === call.upstream ? call.route : `${call.route} → ${call.upstream}`],
    ["Pod", placeOf(call.pod)],
    ["Child of", call.parent_agent],
    ["Streamed", call.streamed === null ? null : call.streamed ? "yes" : "no"],
    ["Input tokens", count(call.tokens.input)],
    ["Cached input tokens", call.tokens.cached_input ? count(call.tokens.cached_input) : null],
    ["Reasoning tokens", call.tokens.reasoning ? count(call.tokens.reasoning) : null],
    ...call.phases.map((phase) => [phase.name[0].toUpperCase() + phase.name.slice(1), seconds(phase.end - phase.start)]),
    ["Waited for", call.wait ? `${waitName(call.wait)}, ${seconds(call.wait.seconds)}` : null],
    ["Calls tools", toolNames(call.tools) || null],
    ["Retry of", call.retry_of ? h("a", { href: callHref(call.retry_of) }, h("code", {}, call.retry_of)) : null],
    ["Repeats itself", call.repetition ? `${count(call.repetition.tokens)} tokens, ${percent(call.repetition.share)} of the output` : null],
    ["Stalls", call.stalls > 0 ? count(call.stalls) : null],
    ["Longest gap between tokens", seconds(call.longest_gap)],
    ["Critical path", onPath ? "yes" : null],
    ["Call", h("a", { href: callHref(call.id) }, h("code", {}, call.id))],
  ];
  return h("dl", { class: "facts" }, facts.filter(([, value]) => value !== null && value !== undefined).map(([label, value]) => h("div", {}, h("dt", {}, label), h("dd", {}, value))));
}

/** The depth of each agent in the tree of parent agents. */
function generations(calls) {
  const parents = new Map(calls.filter((call) => call.parent_agent && call.parent_agent !== call.agent).map((call) => [call.agent, call.parent_agent]));
  const depth = (agent, seen = new Set()) => {
    if (!parents.has(agent) || seen.has(agent) || seen.size > 5) return 0;
    return 1 + depth(parents.get(agent), seen.add(agent));
  };
  return new Map(calls.map(({ agent }) => [agent, depth(agent)]));
}

/** Maps seconds to places on the bar, optionally with shortened waits. */
class Scale {
  constructor(calls, squeezed) {
    this.cuts = [];
    if (squeezed) {
      for (const { offset, wait_before: wait } of calls) {
        if (known(wait) && wait > LONG) this.cuts.push({ from: offset - wait + SHORTENED / 2, gone: wait - SHORTENED });
      }
      this.cuts.sort((one, other) => one.from - other.from);
    }
    this.end = Math.max(...calls.map((call) => call.phases.at(-1)?.end ?? call.offset), 0.001);
    this.length = this.shown(this.end);
  }

  shown(at) {
    return this.cuts.reduce((left, { from, gone }) => left - Math.max(0, Math.min(gone, at - from)), at);
  }

  at(seconds) {
    return `${(Math.max(0, this.shown(seconds)) / this.length) * 100}%`;
  }

  width(start, end) {
    return `${((this.shown(end) - this.shown(Math.max(0, start))) / this.length) * 100}%`;
  }

  /** Ticks at even times. With shortened waits only the ends are labelled. */
  ticks() {
    if (this.cuts.length > 0) return [0, 1].map((share) => [`${share * 100}%`, seconds(this.end * share) ?? "0"]);
    const step = NICE.find((step) => this.end / step <= 5) ?? Math.ceil(this.end / 5);
    const marks = [];
    for (let at = 0; at <= this.end; at += step) marks.push([this.at(at), at === 0 ? "0" : tickName(at)]);
    return marks;
  }
}

const NICE = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 86_400];
const tickName = (at) => (at < 60 ? `${Number(at.toFixed(1))} s` : at % 60 === 0 && at < 3600 ? `${at / 60} min` : seconds(at));
