// The view of one session: its sums, and its calls as a waterfall.
import { Analysis } from "./analysis.js";
import { Beside } from "./beside.js";
import { Composition } from "./composition.js";
import { get } from "./api.js";
import { href, other } from "./address.js";
import { h } from "./dom.js";
import { list, percent, plural, rate, count, seconds, time } from "./format.js";
import { userName } from "./names.js";
import { scoreFacts } from "./scores.js";
import { cost } from "./sessions.js";
import { Waterfall } from "./waterfall.js";
import { PHASES, inMemory } from "./words.js";

const PAGE = 200;

export class Session {
  constructor(host) {
    this.host = host;
  }

  /** Shows session `id`. With `again`, updates the session if it is shown. `measure` has the settings. */
  async open(id, measure, again = false) {
    if (again && this.id !== id) return;
    if (!again) Object.assign(this, { calls: [], sign: null });
    this.id = id;
    this.measure = measure;
    try {
      const shown = Math.max(this.calls.length, PAGE);
      const session = await this.page(id, Math.min(shown, 1000), null);
      if (this.id !== id) return;
      this.show(session);
      this.beside.update(session);
    } catch (error) {
      if (!again && this.id === id) this.host.replaceChildren(frame(id, h("p", { class: "note problem" }, `Could not load: ${error.message}`)));
    }
  }

  page(id, limit, cursor) {
    return get(`sessions/${encodeURIComponent(id)}`, { limit, cursor });
  }

  show(session) {
    const sign = JSON.stringify([userName(session.user), session.last_at, session.calls.length, session.in_flight, session.cost_usd, session.scores]);
    if (this.sign === sign && this.host.dataset.session === session.id) return;
    this.sign = sign;
    if (this.host.dataset.session !== session.id || !this.fall) {
      this.facts = h("div");
      const [beside, body, composition, analysis] = [h("div"), h("div"), h("div", { class: "composition", hidden: true }), h("div", { class: "analysis" })];
      this.more = h("button", { type: "button", hidden: true, on: { click: () => this.moreCalls() } }, "More calls");
      this.host.replaceChildren(frame(session.id, this.facts, beside, body, this.more, composition, analysis));
      this.host.dataset.session = session.id;
      this.beside = new Beside(beside);
      this.fall = new Waterfall(body);
      this.composition?.chart?.remove();
      this.composition = new Composition(composition);
      this.analysis = new Analysis(analysis);
    }
    this.session = session;
    this.calls = session.calls;
    this.next = session.next_cursor;
    this.draw();
  }

  async moreCalls() {
    const page = await this.page(this.id, PAGE, this.next);
    this.calls = [...this.calls, ...page.calls];
    this.next = page.next_cursor;
    this.draw();
  }

  draw() {
    this.facts.replaceChildren(...facts(this.session, this.calls, this.measure));
    this.fall.update(this.session, this.calls, this.analysis.path);
    this.analysis.update(this.session, () => this.fall.update(this.session, this.calls, this.analysis.path));
    this.composition.update(this.calls);
    this.more.hidden = this.next === null;
  }
}

function frame(id, ...content) {
  return h("section", { class: "panel", "aria-labelledby": "session-title" }, h("div", { class: "head" }, h("h2", { id: "session-title" }, "Session ", h("code", {}, id)), h("a", { class: "push", href: other("sessions") }, "← All sessions")), ...content);
}

function facts(session, calls, measure) {
  const { tokens, seconds: took } = session;
  const unpriced = session.unpriced_calls > 0 ? `${plural(session.unpriced_calls, "call")} without a price` : null;
  const told = [
    ["Cost", cost(session) ?? (session.unpriced_calls > 0 ? "no known price" : "no billable calls"), unpriced],
    ["Calls", count(session.total_calls), session.errors > 0 ? h("a", { href: href("calls", { session: session.id, outcome: "failed", from: session.started_at }) }, `${count(session.errors)} failed`) : "none failed"],
    ["Duration", seconds(took.wall), `started ${time(session.started_at, true)}`],
    ["Model time", seconds(took.model), percent(took.wall > 0 ? took.model / took.wall : null)],
    ["Between calls", seconds(took.tools), "tools and people"],
    ["TPS", rate(session.tps.output) ? `${rate(session.tps.output)} tok/s` : "–", session.tps.output === null ? "no calls with TPS" : "while decoding"],
    ["TTFT p50", seconds(took.ttft_p50) ?? "–"],
    ...scoreFacts(session.scores),
    ["Input tokens", count(tokens.input) ?? "–", tokens.cached_input ? `${count(tokens.cached_input)} cached` : null],
    ["Output tokens", count(tokens.output) ?? "–", tokens.reasoning ? `${count(tokens.reasoning)} reasoning` : null],
    ["Agents", list(session.agents, 4) || "–"],
    ["Models", list(session.models, 4) || "–"],
    ["Workload", session.workload],
    ["User", session.user ? userName(session.user) : null],
    ["Experiment", [session.experiment, session.variant].filter(Boolean).join(" / ") || null],
  ];
  const items = told.filter(([, value]) => value !== null && value !== undefined).map(([name, value, more]) => h("div", {}, h("dt", {}, name), h("dd", {}, value), more ? h("dd", { class: "muted small" }, more) : null));
  const kept = session.store === "memory" ? h("p", { class: "note kept" }, `${inMemory(measure, " of all sessions")}. Earlier calls of this session are not included.`) : null;
  return [h("dl", { class: "facts" }, items), ...(kept ? [kept] : []), ...whereTimeWent(session, calls)];
}

/** The phases of the loaded calls and the time between calls, as one bar. */
function whereTimeWent(session, calls) {
  const sums = new Map(Object.keys(PHASES).map((name) => [name, 0]));
  calls.forEach((call) => call.phases.forEach(({ name, start, end }) => sums.set(name, (sums.get(name) ?? 0) + end - start)));
  sums.set("between calls", session.seconds.tools);
  const all = [...sums.values()].reduce((sum, one) => sum + one, 0);
  if (all <= 0) return [];
  const parts = [...sums].filter(([, sum]) => sum > 0);
  const style = (name, sum) => ({ width: `${(sum / all) * 100}%`, ...(name in PHASES ? { background: `var(--${name})` } : {}) });
  const bar = parts.map(([name, sum]) => h("i", { class: name in PHASES ? null : "hatched", style: style(name, sum) }));
  const keys = parts.map(([name, sum]) => h("li", {}, h("i", { class: name in PHASES ? "box" : "box hatched", title: PHASES[name], style: name in PHASES ? { background: `var(--${name})` } : {} }), name, h("b", {}, seconds(sum)), percent(sum / all)));
  const beside = all > session.seconds.wall * 1.01 ? `, more than the session's duration of ${seconds(session.seconds.wall)}, because calls overlapped` : "";
  const note = h("p", { class: "muted small added" }, `Sum of all loaded calls: ${seconds(all)}${beside}.`);
  return [h("div", { class: "split", "aria-hidden": "true" }, bar), h("ul", { class: "keys phases", "aria-label": "Phases, summed over all loaded calls" }, keys), note];
}
