// The critical path of a session, its prompt cache misses, and its trace as a file.
import { callHref } from "./address.js";
import { get, open } from "./api.js";
import { saveFile } from "./save.js";
import { h, meter } from "./dom.js";
import { count, known, percent, plural, seconds, usd } from "./format.js";
import { PHASES } from "./words.js";

const SHOWN = 6;
const AGENTS = 50;

const CAUSES = {
  other_model: "another model answered",
  other_upstream: "another upstream or endpoint",
  idle: "idle for longer than the cache lifetime",
  prefix_changed: "the prompt prefix changed, or the provider evicted it",
  evicted: "the provider evicted an unchanged prompt",
};

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
      const agents = session.agents.length > 1 ? get("groups", { by: "agent", session: session.id, limit: AGENTS }) : { groups: [] };
      const [found, { groups }] = await Promise.all([get(`sessions/${encodeURIComponent(session.id)}/analysis`), agents]);
      if (this.sign !== sign) return;
      this.path = new Set(found.critical_path.steps.map((step) => step.call).filter(Boolean));
      this.host.replaceChildren(this.length(found, session), this.breaks(found.cache_breaks), ...byAgent(groups), this.files());
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
    const rows = breaks.slice(0, 50).map((one) => h("tr", {}, h("td", {}, h("a", { href: callHref(one.call) }, seconds(one.offset))), h("td", { class: "num" }, `${count(one.cached)} of ${count(one.expected)}`), h("td", { class: "num" }, usd(one.cost_usd) ?? "–"), h("td", {}, why(one))));
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

function why({ cause, section, idle_seconds: idle }) {
  if (section) return `changed in the prompt: ${section}`;
  return cause === "idle" ? `idle for ${seconds(idle)}, longer than the cache lifetime` : (CAUSES[cause] ?? cause);
}

/** The cost of each agent of a session with several agents, the most expensive first. */
function byAgent(groups) {
  if (groups.length === 0) return [];
  const all = groups.reduce((sum, { cost_usd: cost }) => sum + (cost ?? 0), 0);
  const dearest = groups.toSorted((one, other) => (other.cost_usd ?? -1) - (one.cost_usd ?? -1));
  const head = [["Agent"], ["Cost", "num"], ["Share", "num"], ["Calls", "num"], ["Failed", "num"], ["Output", "num"]].map(([label, kind]) => h("th", { scope: "col", class: kind ?? null }, label));
  const rows = dearest.map(({ name, cost_usd: cost, unpriced_calls: unpriced, calls, errors, tokens }) => {
    const cells = [known(cost) ? `${usd(cost)}${unpriced > 0 ? " +" : ""}` : "–", all > 0 ? (percent((cost ?? 0) / all) ?? "–") : "–", count(calls), count(errors), count(tokens.output) ?? "–"];
    return h("tr", {}, h("th", { scope: "row" }, name ?? "no agent named"), cells.map((cell) => h("td", { class: "num" }, cell)));
  });
  const table = h("table", { class: "by-agent" }, h("caption", { class: "vh" }, "Cost by agent"), h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows));
  return [h("div", {}, h("h3", {}, "Cost by agent"), h("div", { class: "scroll", role: "region", "aria-label": "Cost by agent", tabindex: "0" }, table))];
}

function what({ phase, agent, model }) {
  const name = phase === null ? "between calls" : phase in PHASES ? phase : "other";
  return [name, agent, model].filter(Boolean).join(" · ");
}
