// Experiments: verdict, arms, and every metric with its interval or the reason why there is none.
import { get } from "./api.js";
import { h } from "./dom.js";
import { count, known, percent, rate, seconds, usd } from "./format.js";

export class Experiments {
  constructor(host) {
    this.problem = h("p", { class: "note problem", role: "status" });
    this.list = h("div");
    host.append(this.problem, this.list);
  }

  async load() {
    try {
      const { experiments } = await get("experiments");
      this.problem.textContent = "";
      this.show(experiments);
    } catch (error) {
      this.problem.textContent = `Could not load: ${error.message}`;
    }
  }

  show(experiments) {
    // Unchanged experiments are not drawn again, so that the focus is kept.
    const sign = JSON.stringify(experiments);
    if (sign === this.sign) return;
    this.sign = sign;
    const none = h("section", { class: "panel" }, h("p", { class: "nothing" }, "No [[experiment]] is configured. An experiment splits the calls of a route among upstreams, or compares the variants that agents name."));
    this.list.replaceChildren(...(experiments.length > 0 ? experiments.map(panel) : [none]));
  }
}

function panel(report, place) {
  const id = `experiment-${place}`;
  return h(
    "section",
    { class: "panel experiment", "aria-labelledby": id },
    h("h2", { id }, report.name, h("span", { class: "muted" }, ` by ${report.unit}`)),
    h("p", { class: report.withheld ? "verdict withheld" : "verdict" }, capital(report.verdict)),
    h("ul", { class: "arms" }, report.arms.map((arm) => h("li", {}, armWords(arm))), leftOut(report).map((words) => h("li", {}, words))),
    report.comparisons.map((comparison) => table(comparison, report)),
  );
}

const capital = (words) => `${words.charAt(0).toUpperCase()}${words.slice(1)}.`;

function armWords({ name, weight, units, complete_units: complete, calls }) {
  const share = known(weight) ? `, weight ${weight}` : "";
  return `${name}: ${count(units)} units, ${count(complete)} complete with ${count(calls)} calls${share}`;
}

/** What is excluded from the comparisons. */
function leftOut(report) {
  const all = [
    [report.calls_without_unit, "calls have no unit or no variant"],
    [report.collapsed_calls, "calls belong to units beyond the limit of the ledger"],
    [report.mixed_units, "units have calls of several variants"],
    [report.other_variants.length, "variants are not arms"],
  ];
  return all.filter(([number]) => number > 0).map(([number, words]) => `${count(number)} ${words} and are left out`);
}

function table({ variant, baseline, metrics }, report) {
  const confidence = Number(((1 - report.alpha) * 100).toFixed(2));
  const heads = ["Metric", baseline, variant, "Difference", `${confidence} % interval`, "p (Holm)", ""];
  const label = `${variant} against ${baseline}`;
  return h(
    "div",
    {},
    h("h3", {}, label),
    h(
      "div",
      { class: "scroll", role: "region", "aria-label": `${report.name}: ${label}`, tabindex: "0" },
      h(
        "table",
        {},
        h("caption", { class: "vh" }, label),
        h("thead", {}, h("tr", {}, heads.map((head, place) => h("th", { scope: "col", class: place > 0 && place < 6 ? "num" : null }, head || "Decision")))),
        h("tbody", {}, metrics.map((metric) => row(metric, report))),
      ),
    ),
  );
}

function row(metric, report) {
  const withheld = metric.withheld !== null;
  const cells = [
    value(metric, metric.baseline, metric.baseline_lower, metric.baseline_upper),
    value(metric, metric.value, metric.value_lower, metric.value_upper),
    withheld ? "–" : `${changed(metric, metric.difference)} ${scale(metric)}`,
    withheld ? "–" : `${changed(metric, metric.lower)} to ${changed(metric, metric.upper)}`,
    known(metric.p) ? metric.p.toFixed(2) : "–",
  ];
  const [words, kind] = DECISIONS[metric.decision] ?? [metric.decision, null];
  return h(
    "tr",
    { "data-metric": metric.metric },
    h("th", { scope: "row" }, metric.score ? `score ${metric.score.name}` : noun(metric.metric, report)),
    cells.map((cell) => h("td", { class: "num" }, cell)),
    h("td", { class: "why" }, withheld ? metric.withheld : h("span", { class: kind ? `tag ${kind}` : null }, words)),
  );
}

const DECISIONS = {
  better: ["better", "good"],
  worse: ["worse", "bad"],
  equal: ["equal", null],
  open: ["no difference shown", null],
  withheld: ["not compared", null],
};

function value(compared, number, lower, upper) {
  if (!known(number)) return "–";
  const units = { tps: rate, cost: usd };
  const figure = plain(compared) ? digits : (units[compared.metric] ?? percent);
  return known(lower) ? `${figure(number)} (${figure(lower)} to ${figure(upper)})` : figure(number);
}

/** Whether figures are in the unit of a score, which is not a share. */
const plain = ({ score }) => score && !score.is_share;
const digits = (number) => String(Number(number.toPrecision(3)));
const scale = (metric) => (metric.relative ? "%" : plain(metric) ? "" : "points");
const changed = (metric, number) => (plain(metric) ? `${number < 0 ? "−" : "+"}${digits(Math.abs(number))}` : signed(number));

/** A share in percent with a sign. */
const signed = (share) => `${share < 0 ? "−" : "+"}${Math.abs(share * 100).toFixed(Math.abs(share) < 0.0995 ? 1 : 0)}`;

function noun(metric, report) {
  const nouns = {
    ttft_above: `calls with TTFT above ${seconds(report.ttft_above)}`,
    tps: "TPS",
    tps_below: `calls with at most ${rate(report.tps_below)} TPS`,
    cost: `cost per ${report.unit}`,
    failures: "failed calls",
    truncated: "truncated responses",
    refused: "refused responses",
    empty: "empty responses",
    cut_off: "responses that are cut off",
    invalid_tool_calls: "responses with unreadable tool calls",
  };
  return nouns[metric] ?? metric;
}
