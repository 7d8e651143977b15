// Compares models, workloads, upstreams or other dimensions, and a time with an earlier time.
import { get } from "./api.js";
import { AGAINST, DIMENSIONS, FILTERS, OF_PODS, address, change, same } from "./address.js";
import { csvButton } from "./csv.js";
import { h } from "./dom.js";
import { filters, filtersAgainst } from "./filters.js";
import { nameIn } from "./names.js";
import { averageList, averages } from "./scores.js";
import { Table } from "./table.js";
import { count, frequency, known, percent, rate, seconds, usd } from "./format.js";
import { bandName, outcome } from "./words.js";

export class Compare {
  constructor(host) {
    this.scale = 1;
    [this.rows, this.before] = [[], new Map()];
    this.problem = h("p", { class: "note problem" });
    this.by = picker("Group by", "by", Object.entries(DIMENSIONS));
    this.against = picker("Compare with", "against", [["", "nothing"], ...Object.entries(AGAINST)]);
    host.append(h("div", { class: "head" }, h("label", { class: "muted" }, "Group by ", this.by), h("label", { class: "muted" }, "Compare with ", this.against), h("ul", { class: "keys push", "aria-label": "Experience bands" }, ...bandKeys()), csvButton("comparison", () => this.rows.map((row) => ({ ...row, name: nameIn(address.params.by, row.name) })))));
    const why = () => "no calls with TPS";
    this.table = new Table(host, {
      label: "Comparison",
      order: { id: "calls", ascending: false },
      param: "sort",
      key: (row) => row.name ?? "",
      nothing: () => "No calls in this window.",
      columns: [
        { id: "name", label: "Name", head: true, clip: true, sort: (r) => r.name, text: (r) => r.name && `${nameIn(address.params.by, r.name)} ${address.params.by}`, node: (r) => nameOf(r), why: () => "calls without a name" },
        { id: "calls", label: "Calls", num: true, sort: (r) => r.calls, ...this.then((r) => r.calls, count) },
        { id: "errors", label: "Failed", num: true, wide: true, sort: (r) => r.errors / r.calls, ...this.then((r) => (r.calls > 0 ? r.errors / r.calls : null), percent), why: () => "no calls" },
        { id: "p50", label: "TPS p50", num: true, sort: (r) => r.tps.p50, ...this.then((r) => r.tps.p50, rate), why, hint: "Half of the calls stream faster than this speed" },
        { id: "p10", label: "p10", num: true, wide: true, sort: (r) => r.tps.p10, text: (r) => rate(r.tps.p10), why, hint: "One call in ten is slower than this speed" },
        { id: "p5", label: "p5", num: true, wide: true, sort: (r) => r.tps.p5, text: (r) => rate(r.tps.p5), why, hint: "One call in twenty is slower than this speed, which other tools call the p95 of TPS" },
        { id: "p1", label: "p1", num: true, wide: true, sort: (r) => r.tps.p1, text: (r) => rate(r.tps.p1), why, hint: "One call in a hundred is slower than this speed, which other tools call the p99 of TPS" },
        { id: "judged", label: "Measured", num: true, wide: true, sort: (r) => r.tps.calls, text: (r) => `${count(r.tps.calls)} of ${count(r.calls)}`, hint: "Calls with TPS out of all calls. The list of calls shows why others have none" },
        { id: "reported", label: "Reported TPS", num: true, wide: true, sort: (r) => r.tps_reported.p50, text: (r) => rate(r.tps_reported.p50), why: () => "the provider reported no tokens", hint: "TPS p50 in the provider's own tokens, as engines and benchmarks count them. The provider's tokenizer may split text into more or fewer tokens than the tokenizer that all models are compared by" },
        { id: "range", label: "p1 to p50", wide: true, spare: true, text: (r) => `${r.tps.p1} ${r.tps.p10} ${r.tps.p50} ${this.scale}`, node: (r) => this.range(r) },
        { id: "bands", label: "Experience", wide: true, text: (r) => JSON.stringify(r.bands), node: (r) => bands(r) },
        { id: "ttft", label: "TTFT p50", num: true, sort: (r) => r.ttft.p50, ...this.then((r) => r.ttft.p50, seconds), why: () => "no streamed calls" },
        { id: "ttft95", label: "p95", num: true, wide: true, sort: (r) => r.ttft.p95, text: (r) => seconds(r.ttft.p95), why: () => "no streamed calls" },
        { id: "ttft99", label: "p99", num: true, wide: true, sort: (r) => r.ttft.p99, text: (r) => seconds(r.ttft.p99), why: () => "no streamed calls" },
        { id: "share", label: "TTFT share", num: true, wide: true, sort: (r) => r.ttft.share, text: (r) => percent(r.ttft.share), why: () => "no streamed calls", hint: "Time to first token as a share of the total duration of these calls" },
        { id: "scores", label: "Scores", wide: true, scored: true, sort: (r) => r.scores?.[0]?.average ?? null, text: averages, node: averageList, why: () => "no score was sent", hint: "Averages of the scores that programs sent, for the calls, sessions and traces of the row" },
        { id: "requests", label: "Req/s", num: true, wide: true, sort: (r) => r.requests_per_second, text: (r) => frequency(r.requests_per_second), why: () => "the time span is unknown", hint: "Requests per second over the stored part of the window" },
        { id: "output", label: "Output", num: true, wide: true, sort: (r) => r.tokens.output, text: (r) => count(r.tokens.output), why: () => "no tokens were counted", hint: "Output tokens" },
        { id: "cost", label: "Cost", num: true, sort: (r) => r.cost_usd, text: (r) => costOf(r), why: () => "no price is known", hint: "A + means that calls without a price are not included" },
        { id: "call", label: "Cost / call", num: true, wide: true, sort: (r) => perCall(r), text: (r) => usd(perCall(r)), why: () => "no price is known", hint: "Average of the calls with tokens and a price" },
        { id: "per", label: "$ / M out", num: true, wide: true, sort: (r) => r.usd_per_million_output, text: (r) => usd(r.usd_per_million_output), why: () => "no price is known", hint: "Dollars per million output tokens" },
      ],
    });
    host.append(this.problem);
  }

  /** Text and node of a figure, with its value in the earlier time. */
  then(figure, write) {
    const was = (row) => (this.compared ? (write(this.before.has(row.name) ? figure(this.before.get(row.name)) : null) ?? "–") : null);
    return {
      text: (row) => (was(row) === null ? write(figure(row)) : `${write(figure(row)) ?? "–"} was ${was(row)}`),
      node: (row) => h("span", {}, write(figure(row)) ?? "–", was(row) === null ? null : h("span", { class: "was" }, h("span", { class: "vh" }, " "), `was ${was(row)}`)),
    };
  }

  /** Takes the selection from the address. */
  follow() {
    const { by = "model", against = "" } = address.params;
    this.by.value = by;
    this.against.value = against;
    this.table.follow();
  }

  async load(current) {
    const { by = "model", against } = address.params;
    try {
      const asked = [filters(), ...(against ? [filtersAgainst(against)] : [])].map((of) => get("groups", { ...of, by, limit: 1000 }));
      const [now, then] = await Promise.all(asked);
      if (!current()) return null;
      this.compared = Boolean(then);
      this.before = new Map(then?.groups.map((row) => [row.name, row]));
      this.rows = now.groups;
      this.problem.textContent = "";
      this.show();
      return now;
    } catch (error) {
      if (current()) this.problem.textContent = `Could not load: ${error.message}`;
      return null;
    }
  }

  range({ tps }) {
    if (!known(tps.p50)) return h("span", { class: "unknown" }, "–");
    const at = (value) => `${(value / this.scale) * 100}%`;
    const low = tps.p1 ?? tps.p10 ?? tps.p50;
    return h(
      "span",
      { class: "range", "aria-hidden": "true" },
      h("i", { style: { left: at(low), width: at(tps.p50 - low) } }),
      known(tps.p10) ? h("b", { style: { left: at(tps.p10) } }) : null,
      h("u", { style: { left: at(tps.p50) } }),
    );
  }

  show() {
    const { rows } = this;
    this.scale = Math.max(...rows.map((row) => row.tps.p50 ?? 0), 1) * 1.06;
    this.table.table.classList.toggle("has-scores", rows.some((row) => row.scores));
    this.table.update(rows);
  }
}

/** A selection that is stored in the address unless it is the first option. */
function picker(label, param, options) {
  const select = h("select", { "aria-label": label, on: { change: () => change({ [param]: select.value === options[0][0] ? null : select.value }) } }, options.map(([value, name]) => h("option", { value, class: OF_PODS.includes(value) ? "of-fleet" : null }, name)));
  return select;
}

/** A name that links to its figures, if there is a filter for it. */
function nameOf({ name }) {
  const { by = "model" } = address.params;
  const words = by === "outcome" ? outcome(name)[0] : nameIn(by, name);
  return FILTERS.includes(by) ? h("a", { href: same({ [by]: name }), title: words }, words) : h("span", { title: words }, words);
}

/** The average cost of a call with a price. */
const perCall = (row) => (known(row.cost_usd) && row.calls > row.unpriced_calls ? row.cost_usd / (row.calls - row.unpriced_calls) : null);
const costOf = (row) => (known(row.cost_usd) ? usd(row.cost_usd) + (row.unpriced_calls > 0 ? " +" : "") : null);
const NAMES = ["frustrating", "slow", "comfortable", "fast", "instant"];
const LIMITS = ["under 5", "5–15", "15–30", "30–60", "60+ tok/s"];
const bandKeys = () => NAMES.map((name, place) => h("li", {}, h("i", { class: "box", style: { background: `var(--${name})` } }), `${name} ${LIMITS[place]}`));

function bands(row) {
  const all = row.bands.reduce((sum, band) => sum + band.calls, 0);
  if (all === 0) return h("span", { class: "unknown" }, "–");
  const some = row.bands.filter((band) => band.calls > 0);
  const parts = some.map((band) => h("i", { style: { width: `${(band.calls / all) * 100}%`, background: `var(--${bandName(band.from)})` } }));
  const words = some.map((band) => `${bandName(band.from)} ${percent(band.calls / all)}`).join(", ");
  return h("span", { title: words }, h("span", { class: "stack", "aria-hidden": "true" }, parts), h("span", { class: "vh" }, words));
}
