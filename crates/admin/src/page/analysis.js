// The critical path of a session, its prompt cache misses, and its trace as a file.
import { callHref } from "./address.js";
import { get, open } from "./api.js";
import { saveFile } from "./save.js";
import { h, meter } from "./dom.js";
import { count, known, percent, plural, seconds, usd } from "./format.js";
import { CAUSES, PHASES, WAITS } from "./words.js";

const SHOWN = 6;
const AGENTS = 50;

export class Analysis {
  constructor(host) {
    this.host = host;
    /** The ids of the calls on the critical path. */
    this.path = new Set();
  }

  /** Loads the analysis again if the session has grown. */
  async update(session, drawn) {
    const sign = JSON.stringify([session.id, session.total_calls]);
    if (this.sign === sign) return;
    this.sign = sign;
    this.id = session.id;
    try {
      const found = await get(`sessions/${encodeURIComponent(session.id)}/analysis`);
      if (this.sign !== sign) return;
      this.path = new Set(found.critical_path.steps.map((step) => step.call).filter(Boolean));
      this.host.replaceChildren(timeUse(found.time), this.length(found, session), this.breaks(found.cache_breaks), ...byAgent(found.agents), ...byTool(found.tools), ...wasted(found.waste), this.files());
      drawn();
    } catch (error) {
      if (this.sign === sign) this.host.replaceChildren(h("p", { class: "note problem" }, `Could not load the critical path: ${error.message}`));
      this.sign = null;
    }
  }

  length({ calls, critical_path: path }, session) {
    const beside = path.calls_beside === 0 ? "Every call is on the critical path." : `${plural(path.calls_beside, "other call")} did not delay the end of the session.`;
    const part = calls < session.total_calls ? ` Only the last ${count(calls)} calls are included.` : "";
    const rows = path.parts.slice(0, SHOWN).map((part) => h("li", {}, meter(part.share), h("b", {}, seconds(part.seconds)), " ", h("span", { class: "muted" }, percent(part.share)), " ", what(part)));
    const more = path.parts.length > SHOWN ? h("p", { class: "muted small" }, `and ${plural(path.parts.length - SHOWN, "shorter part")}`) : null;
    return h("div", {}, h("h3", {}, "Critical path"), h("p", { class: "muted" }, `The session would have ended sooner only if these parts had been shorter. ${beside}${part}`), h("ol", { class: "path-parts" }, rows), more);
  }

  breaks(breaks) {
    const title = h("h3", {}, "Prompt cache");
    if (breaks.length === 0) return h("div", {}, title, h("p", { class: "muted" }, "No turn missed the cache, as far as the provider reports cached input."));
    const missed = breaks.reduce((sum, one) => sum + one.expected - one.cached, 0);
    const costs = breaks.map((one) => one.cost_usd);
    const cost = costs.every((one) => one !== null) ? `, which cost ${usd(costs.reduce((sum, one) => sum + one, 0))}` : "";
    const heads = [["At"], ["Cached", "num"], ["Cost", "num"], ["Probable cause"]];
    const head = h("tr", {}, heads.map(([label, kind]) => h("th", { scope: "col", class: kind ?? null }, label)));
    const rows = breaks.slice(0, 50).map((one) => h("tr", {}, h("td", {}, h("a", { href: callHref(one.call) }, seconds(one.offset))), h("td", { class: "num" }, `${count(one.cached)} of ${count(one.expected)}`), h("td", { class: "num" }, usd(one.cost_usd) ?? "–"), h("td", {}, because(one))));
    const table = h("table", { class: "breaks" }, h("caption", { class: "vh" }, "Turns that missed the prompt cache"), h("thead", {}, head), h("tbody", {}, rows));
    return h("div", {}, title, h("p", {}, `${plural(breaks.length, "turn")} missed ${count(missed)} cached tokens${cost}.`), h("div", { class: "scroll", role: "region", "aria-label": "Turns that missed the prompt cache", tabindex: "0" }, table));
  }

  files() {
    const said = h("span", { class: "muted", role: "status" });
    const button = (format, label) => h("button", { type: "button", on: { click: () => this.save(format, said) } }, label);
    return h("div", { class: "head" }, button("perfetto", "Trace for Perfetto"), button("otlp", "Trace as OTLP JSON"), said);
  }

  async save(format, said) {
    try {
      const response = await open(`api/v1/sessions/${encodeURIComponent(this.id)}/trace`, { format });
      saveFile(await response.blob(), `session ${this.id} ${format}`, "json");
      said.textContent = "";
    } catch (error) {
      said.textContent = `Could not export: ${error.message}`;
    }
  }
}

const TIMES = [
  ["model", "Models", "--answer"],
  ["proxy", "Connecting and sending", "--connect"],
  ["tools", "Tools", "--series-2"],
  ["human", "People", "--series-4"],
  ["other", "Other", "--other"],
];

/** What the session's time was spent on, as one bar. */
function timeUse(time) {
  const parts = TIMES.filter(([name]) => time[name] > 0);
  const bar = parts.map(([name, , colour]) => h("i", { style: { width: `${(time[name] / time.wall) * 100}%`, background: `var(${colour})` } }));
  const keys = parts.map(([name, label, colour]) => h("li", {}, h("i", { class: "box", style: { background: `var(${colour})` } }), label, h("b", {}, seconds(time[name])), percent(time[name] / time.wall)));
  return h("div", { class: "time-use" }, h("h3", {}, "Time"), h("div", { class: "split", "aria-hidden": "true" }, bar), h("ul", { class: "keys phases", "aria-label": "What the session's time was spent on" }, keys));
}

function table(name, label, columns, rows) {
  const head = columns.map(([label], place) => h("th", { scope: "col", class: place > 0 ? "num" : null }, label));
  const body = rows.map((row) => h("tr", {}, columns.map(([, value], place) => (place > 0 ? h("td", { class: "num" }, value(row) ?? "–") : h("th", { scope: "row" }, value(row))))));
  const made = h("table", { class: name }, h("caption", { class: "vh" }, label), h("thead", {}, h("tr", {}, head)), h("tbody", {}, body));
  return [h("div", {}, h("h3", {}, label), h("div", { class: "scroll", role: "region", "aria-label": label, tabindex: "0" }, made))];
}

/** The cost and time of each agent of a session with several agents, the most expensive first. */
function byAgent(agents) {
  if (agents.length < 2) return [];
  const all = agents.reduce((sum, { cost_usd: cost }) => sum + (cost ?? 0), 0);
  const dearest = agents.toSorted((one, other) => (other.cost_usd ?? -1) - (one.cost_usd ?? -1)).slice(0, AGENTS);
  const columns = [
    ["Agent", ({ agent }) => agent ?? "no agent named"],
    ["Cost", ({ cost_usd: cost }) => usd(cost)],
    ["Share", ({ cost_usd: cost }) => (all > 0 ? percent((cost ?? 0) / all) : null)],
    ["Calls", ({ calls }) => count(calls)],
    ["Failed", ({ failed }) => count(failed)],
    ["Input", ({ input_tokens: tokens }) => count(tokens)],
    ["Output", ({ output_tokens: tokens }) => count(tokens)],
    ...TIMES.filter(([name]) => name !== "proxy").map(([name, label]) => [label, ({ seconds: time }) => seconds(time[name])]),
  ];
  return table("by-agent", "Agents", columns, dearest);
}

/** Results, errors, time and tokens of each tool, the tool with the most tokens first. */
function byTool(tools) {
  if (tools.length === 0) return [];
  const columns = [
    ["Tool", ({ name }) => name],
    ["Results", ({ calls }) => count(calls)],
    ["Errors", ({ failures }) => count(failures)],
    ["Time", ({ seconds: time }) => (time > 0 ? seconds(time) : null)],
    ["Definition tokens", ({ schema_tokens: tokens }) => count(tokens)],
    ["Result tokens", ({ new_result_tokens: tokens }) => count(tokens)],
    ["Sent again", ({ resent_result_tokens: tokens }) => count(tokens)],
  ];
  return table("by-tool", "Tools", columns, tools.slice(0, AGENTS));
}

/** What failures, retries and repetition took, if there were any. */
function wasted({ failed, retried, repetitive_calls: repetitive, repeated_tokens: repeated }) {
  const cost = ({ cost_usd: sum }) => (known(sum) ? `, ${usd(sum)}` : "");
  const told = [
    failed.calls > 0 && `${plural(failed.calls, "call")} failed: ${count(failed.input_tokens + failed.output_tokens)} tokens${cost(failed)}.`,
    retried.calls > 0 && `${plural(retried.calls, "call")} repeated a request that had failed: ${count(retried.input_tokens + retried.output_tokens)} tokens${cost(retried)}.`,
    repetitive > 0 && `${plural(repetitive, "answer")} repeated the same text: ${count(repeated)} output tokens.`,
  ].filter(Boolean);
  return told.length > 0 ? [h("div", { class: "wasted" }, h("h3", {}, "Failures and repetition"), told.map((words) => h("p", {}, words)))] : [];
}

/** The cause of a cache break in words. */
function because({ cause, section, idle_seconds: idle }) {
  if (cause === "idle") return `idle for ${seconds(idle)}, longer than the cache lifetime`;
  if (section) return `the prompt changed: ${section}`;
  return CAUSES[cause] ?? cause;
}

function what({ phase, wait, agent, model }) {
  const name = phase === null ? (WAITS[wait] ?? "between calls") : phase in PHASES ? phase : "other";
  return [name, agent, model].filter(Boolean).join(" · ");
}
