// The last finished calls, and why some have no speed.
import { h, text } from "./dom.js";
import { Table } from "./table.js";
import { count, known, plural, rate, seconds, short, time, usd } from "./format.js";
import { outcome, unavailable } from "./words.js";

const KEPT = 500;
const SHOWN = 30;

export class Calls {
  constructor(host) {
    this.calls = [];
    this.measure = {};
    this.matches = () => true;
    this.reasons = h("dl", { class: "reasons" });
    this.summary = h("summary");
    this.why = h("details", { hidden: true }, this.summary, this.reasons);
    this.table = new Table(host, {
      label: "Last finished calls",
      tall: true,
      key: (call) => call.id,
      nothing: () => "No finished call yet.",
      columns: [
        { id: "at", label: "Started", head: true, text: (c) => time(c.started_at, true) },
        { id: "model", label: "Model", clip: true, text: (c) => c.model ?? c.model_requested, why: () => "neither request nor answer named it" },
        { id: "tps", label: "TPS", num: true, text: (c) => rate(c.tps.output) ?? `– ${c.tps.unavailable}`, node: (c) => this.speed(c) },
        { id: "ttft", label: "TTFT", num: true, text: (c) => seconds(c.seconds.ttft), why: () => "no generated text came as a stream" },
        { id: "duration", label: "Took", num: true, wide: true, text: (c) => seconds(c.seconds.duration) },
        { id: "tokens", label: "Output", num: true, wide: true, text: (c) => count(c.tokens.reported.output ?? c.tokens.normalised.output), why: () => "no token was counted" },
        { id: "cost", label: "Cost", num: true, wide: true, text: (c) => usd(c.cost_usd), why: () => "no price is known for the model" },
        { id: "outcome", label: "Outcome", text: (c) => ending(c), node: (c) => h("span", { class: `tag ${outcome(c.outcome)[1]}` }, ending(c)) },
        { id: "agent", label: "Agent", wide: true, clip: true, text: (c) => c.agent, why: () => "the agent did not name itself" },
        { id: "session", label: "Session", wide: true, clip: true, text: (c) => c.session, why: () => "the agent named no session", node: (c) => h("a", { href: `#/sessions/${encodeURIComponent(c.session)}`, title: c.session }, short(c.session)) },
      ],
    });
    host.append(this.why);
  }

  speed(call) {
    if (known(call.tps.output)) return h("span", {}, rate(call.tps.output));
    const [words, sentence] = unavailable(call.tps.unavailable, this.measure);
    return h("span", { class: "muted", title: sentence }, words);
  }

  /** All of them, newest first. */
  replace(calls) {
    this.calls = calls;
    this.show();
  }

  add(call) {
    if (this.calls.some((known) => known.id === call.id)) return;
    this.calls.unshift(call);
    this.calls.length = Math.min(this.calls.length, KEPT);
    this.due ??= setTimeout(() => {
      this.due = undefined;
      this.show();
    }, 400);
  }

  show() {
    const calls = this.calls.filter(this.matches);
    this.table.update(calls.slice(0, SHOWN));
    const without = new Map();
    for (const { tps } of calls) {
      if (!known(tps.output)) without.set(tps.unavailable, (without.get(tps.unavailable) ?? 0) + 1);
    }
    this.why.hidden = without.size === 0;
    const missing = [...without.values()].reduce((sum, n) => sum + n, 0);
    text(this.summary, `${count(missing)} of the last ${plural(calls.length, "call")} ${missing === 1 ? "has" : "have"} no TPS: why`);
    const rows = [...without].sort((one, other) => other[1] - one[1]).map(([word, n]) => {
      const [words, sentence] = unavailable(word, this.measure);
      return [h("dt", {}, `${words} `, h("span", { class: "muted" }, `× ${n}`)), h("dd", {}, sentence)];
    });
    const sign = [...without].join();
    if (this.sign !== sign) this.reasons.replaceChildren(...rows.flat());
    this.sign = sign;
  }
}

const ending = (call) => {
  const [words] = outcome(call.outcome);
  const more = call.error_type ?? (call.outcome === "http_error" ? call.status : null);
  return more ? `${words}: ${more}` : words;
};
