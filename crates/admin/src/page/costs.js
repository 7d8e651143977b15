// The cost of calls over time, by a dimension.
import { get } from "./api.js";
import { DIMENSIONS, FILTERS, OF_PODS, address, change, other } from "./address.js";
import { Chart, shadeSteps } from "./chart.js";
import { csvButton } from "./csv.js";
import { h, meter, text, toggle } from "./dom.js";
import { filters, fromFirst, span, step, zoom } from "./filters.js";
import { count, known, percent, plural, time, usd } from "./format.js";
import { loadMarks } from "./marks.js";
import { nameIn } from "./names.js";
import { Table } from "./table.js";

/** Dimensions by which costs are rarely grouped. */
const SELDOM = ["outcome", "prompt_length", "output_length", "upstream_facts", ...OF_PODS];
/** The dimensions by which costs can be grouped. */
export const SPENT_BY = Object.keys(DIMENSIONS).filter((by) => !SELDOM.includes(by));
const SERIES = 8;
const DAY = 86_400;
/** The seconds of a point. Half days become days of UTC, since a ledger has sums of users, keys and tools by day. */
const costStep = () => (step() === DAY / 2 ? DAY : step());
const tokensOf = ({ tokens: { input, output } }) => (input === null && output === null ? null : (input ?? 0) + (output ?? 0));
/** What the curves show. */
const MEASURES = {
  cost: { label: "Cost", of: (sums) => sums.cost_usd, write: (value) => usd(value), nothing: "No calls with a known price in this window." },
  tokens: { label: "Tokens", of: tokensOf, write: (value) => count(value), nothing: "No tokens were counted in this window." },
};

export class Costs {
  constructor(host) {
    this.by = h("select", { on: { change: () => change({ by: this.by.value === "model" ? null : this.by.value }) } }, SPENT_BY.map((kind) => h("option", { value: kind }, DIMENSIONS[kind])));
    this.measure = toggle("Metric", Object.entries(MEASURES).map(([name, { label }]) => [name, label]), "cost", (name) => change({ of: name === "cost" ? null : name }));
    this.speeds = h("a", { class: "push" }, "Compare cost and speed");
    this.plot = h("div");
    this.problem = h("p", { class: "note problem" });
    this.note = h("p", { class: "note" });
    host.append(h("div", { class: "head" }, h("label", { class: "muted" }, "By ", this.by), this.measure, this.speeds, csvButton("cost over time", () => this.points())), this.plot, this.problem);
    this.table = new Table(host, { label: "Cost by dimension", order: { id: "cost", ascending: false }, param: "sort", key: ({ key }) => key, nothing: () => "No calls in this window.", columns: this.columns() });
    host.append(this.note);
  }

  columns() {
    const leads = (view, row, more) => (row.name !== null && FILTERS.includes(this.dimension) ? other(view, { [this.dimension]: row.name, ...more }) : null);
    const link = (view, row, words, more) => {
      const to = leads(view, row, more);
      return to ? h("a", { href: to }, words) : h("span", {}, words);
    };
    const sign = (row, words) => `${words} ${leads("calls", row)}`;
    const why = () => "no tokens were counted";
    return [
      { id: "name", label: "Name", head: true, clip: true, sort: (r) => r.label, text: (r) => sign(r, `${r.label} ${r.colour}`), node: (r) => h("span", { title: r.label }, h("i", { class: "swatch", style: { background: `var(${r.colour})` } }), link("costs", r, r.label, { by: this.dimension })) },
      { id: "cost", label: "Cost", num: true, sort: (r) => r.cost_usd, text: (r) => (known(r.cost_usd) ? usd(r.cost_usd) + (r.unpriced_calls > 0 ? " +" : "") : null), why: () => "no price is known", hint: "A + means that calls without a price are not included" },
      { id: "share", label: "Share", wide: true, sort: (r) => r.share, text: (r) => percent(r.share), why: () => "no price is known", node: (r) => h("span", {}, meter(r.share, "", "speed"), percent(r.share)) },
      { id: "per", label: "Cost / call", num: true, wide: true, sort: (r) => r.per, text: (r) => usd(r.per), why: () => "no price is known", hint: "Average of the calls with tokens and a price" },
      { id: "calls", label: "Calls", num: true, sort: (r) => r.calls, text: (r) => sign(r, count(r.calls)), node: (r) => link("calls", r, count(r.calls)) },
      { id: "errors", label: "Failed", num: true, wide: true, sort: (r) => r.errors, text: (r) => sign(r, count(r.errors)), node: (r) => (r.errors > 0 ? link("calls", r, count(r.errors), { outcome: "failed" }) : h("span", {}, "0")) },
      { id: "input", label: "Input", num: true, wide: true, sort: (r) => r.tokens.input, text: (r) => count(r.tokens.input), why, hint: "Input tokens, including cached tokens" },
      { id: "cached", label: "Cached", num: true, wide: true, sort: (r) => r.cached, text: (r) => percent(r.cached), why: () => "no cached input was reported", hint: "Share of the input that came from a cache" },
      { id: "output", label: "Output", num: true, wide: true, sort: (r) => r.tokens.output, text: (r) => count(r.tokens.output), why, hint: "Output tokens" },
      { id: "sessions", label: "Sessions", wide: true, text: (r) => leads("sessions", r) ?? "–", node: (r) => this.sessions(r) },
    ];
  }

  sessions(row) {
    if (row.name === null || !FILTERS.includes(this.dimension)) return h("span", { class: "unknown" }, "–");
    return h("a", { href: other("sessions", { [this.dimension]: row.name, sort: "-cost" }), "aria-label": `by cost: sessions of ${row.label}` }, "by cost");
  }

  /** Loads the costs in the address, unless `current()` is false by then. */
  async load(current) {
    const { by = "model", of = "cost" } = address.params;
    Object.assign(this, { dimension: by, of });
    this.by.value = by;
    for (const button of this.measure.children) button.setAttribute("aria-pressed", String(button.textContent === MEASURES[of].label));
    this.speeds.href = `${other("now", { by })}#models-title`;
    this.table.follow();
    loadMarks(filters(), current);
    try {
      const asked = (series) => get("costs", { ...filters(), dimension: by, step: `${costStep()}s`, series });
      let answer = await asked(SERIES);
      // A single remaining name is shown as itself.
      if (answer.others?.names === 1) answer = await asked(SERIES + 1);
      if (!current()) return;
      this.answer = answer;
      text(this.problem, "");
      this.show();
    } catch (error) {
      if (current()) text(this.problem, `Could not load: ${error.message}`);
    }
  }

  show() {
    const { series, others } = this.answer;
    const all = [...series, ...(others ? [others] : [])];
    const spent = all.reduce((sum, { cost_usd: cost }) => sum + (cost ?? 0), 0);
    this.rows = all.map((one, place) => this.row(one, place, one === others, spent));
    this.draw();
    this.table.update(this.rows);
    const unpriced = all.reduce((sum, one) => sum + one.unpriced_calls, 0);
    const missing = unpriced > 0 ? ` ${plural(unpriced, "call")} had no known price and ${unpriced === 1 ? "is" : "are"} not included.` : "";
    text(this.note, all.length > 0 ? `${usd(spent)} since ${time(this.answer.since)}, by start time of the call.${missing}` : "");
  }

  row(one, place, rest, spent) {
    const { calls, unpriced_calls: unpriced, tokens, cost_usd: cost } = one;
    const label = rest ? `${plural(one.names, "other")}` : (nameIn(this.dimension, one.name) ?? "calls without a name");
    return { ...one, label, key: rest ? "others" : `=${one.name}`, colour: rest || place >= SERIES ? "--series-0" : `--series-${place + 1}`, share: known(cost) && spent > 0 ? cost / spent : null, per: known(cost) && calls > unpriced ? cost / (calls - unpriced) : null, cached: tokens.input > 0 && tokens.cached_input !== null ? tokens.cached_input / tokens.input : null };
  }

  /** Draws the chart. It is created again if the rows change, since each row is a series. */
  draw() {
    const { label, of, write, nothing } = MEASURES[this.of];
    const sign = JSON.stringify([this.of, this.rows.map((row) => row.label)]);
    if (this.sign !== sign) {
      const open = this.chart?.table.open; // keeps the open table open
      this.chart?.remove();
      this.plot.replaceChildren();
      const series = this.rows.map((row, place) => ({ key: `s${place}`, label: row.label, colour: row.colour, box: true, fill: row.colour }));
      const marks = (plot, chart) => shadeSteps(plot, chart.points.filter((point) => point.open), "incomplete");
      this.chart = new Chart(this.plot, { label: `${label} by ${DIMENSIONS[this.dimension].toLowerCase()}, by start time of the call`, series, stacked: true, high: true, write: (value) => write(value), nothing, marks, zoom, total: (one) => write(of(this.rows[Number(one.key.slice(1))])) ?? "–" });
      this.chart.table.open = Boolean(open);
      this.sign = sign;
    }
    const { step: width } = this.answer;
    const now = Date.now() / 1000;
    const shown = span(now);
    const end = shown.to ?? now;
    const earliest = Math.min(...this.rows.map(({ points }) => (points.length > 0 ? Date.parse(points[0].at) / 1000 : Infinity)));
    const [first, last] = [Math.floor(fromFirst(earliest, width, shown.from, end) / width), Math.ceil(end / width)];
    const points = Array.from({ length: Math.max(0, last - first) }, (_, at) => ({ at: (first + at) * width, step: width, open: (first + at + 1) * width > now }));
    this.rows.forEach((row, place) => row.points.forEach((point) => {
      const at = Date.parse(point.at) / 1000 / width - first;
      if (points[at]) points[at][`s${place}`] = of(point);
    }));
    this.chart.update(points, [first * width, last * width]);
  }

  /** The rows of the CSV file: one for each point of each series. */
  points() {
    return (this.rows ?? []).flatMap(({ label, points }) => points.map(({ at, ...sums }) => ({ at, [this.dimension]: label, ...sums })));
  }
}
