// Models, workloads, lengths or upstreams side by side.
import { h, toggle } from "./dom.js";
import { Table } from "./table.js";
import { count, frequency, known, percent, rate, seconds, usd } from "./format.js";
import { bandName } from "./words.js";

export class Compare {
  constructor(host, picked) {
    this.kind = "models";
    this.scale = 1;
    this.problem = h("p", { class: "note problem" });
    const head = h("div", { class: "head" }, toggle("What to compare", KINDS, "models", (kind) => {
      this.kind = kind;
      this.show();
      picked(kind);
    }), h("ul", { class: "keys push", "aria-label": "Experience bands" }, ...bandKeys()));
    host.append(head);
    const why = () => "no call with a speed";
    this.table = new Table(host, {
      label: "Models or workloads side by side",
      order: { id: "calls", ascending: false },
      key: (row) => row.name ?? "",
      nothing: () => "No call in this window.",
      columns: [
        { id: "name", label: "Name", head: true, clip: true, sort: (r) => r.name, text: (r) => r.name, why: () => "calls without one" },
        { id: "calls", label: "Calls", num: true, sort: (r) => r.calls, text: (r) => count(r.calls) },
        { id: "errors", label: "Failed", num: true, wide: true, sort: (r) => r.errors / r.calls, text: (r) => (r.calls > 0 ? percent(r.errors / r.calls) : null), why: () => "no call" },
        { id: "p50", label: "TPS p50", num: true, sort: (r) => r.tps.p50, text: (r) => rate(r.tps.p50), why, hint: "Half of the calls stream faster than this" },
        { id: "p10", label: "p10", num: true, wide: true, sort: (r) => r.tps.p10, text: (r) => rate(r.tps.p10), why, hint: "One call in ten is slower than this" },
        { id: "p5", label: "p5", num: true, wide: true, sort: (r) => r.tps.p5, text: (r) => rate(r.tps.p5), why, hint: "One call in twenty is slower than this: what others write as the p95 of TPS" },
        { id: "p1", label: "p1", num: true, wide: true, sort: (r) => r.tps.p1, text: (r) => rate(r.tps.p1), why, hint: "One call in a hundred is slower than this: what others write as the p99 of TPS" },
        { id: "judged", label: "Judged", num: true, wide: true, sort: (r) => r.tps.calls, text: (r) => `${count(r.tps.calls)} of ${count(r.calls)}`, hint: "Calls with a TPS, of all calls; the others say in their list why they have none" },
        { id: "reported", label: "reported", num: true, wide: true, sort: (r) => r.tps_reported.p50, text: (r) => rate(r.tps_reported.p50), why: () => "the provider reported no tokens", hint: "TPS p50 in the provider's own tokens, as engines and benchmarks count them. Its tokenizer makes more or fewer tokens of a text than the one that all models are compared by" },
        { id: "range", label: "p1 to p50", wide: true, text: (r) => `${r.tps.p1} ${r.tps.p10} ${r.tps.p50} ${this.scale}`, node: (r) => this.range(r) },
        { id: "bands", label: "Experience", wide: true, text: (r) => JSON.stringify(r.bands), node: (r) => bands(r) },
        { id: "ttft", label: "TTFT p50", num: true, sort: (r) => r.ttft.p50, text: (r) => seconds(r.ttft.p50), why: () => "no streamed call" },
        { id: "ttft95", label: "p95", num: true, wide: true, sort: (r) => r.ttft.p95, text: (r) => seconds(r.ttft.p95), why: () => "no streamed call" },
        { id: "ttft99", label: "p99", num: true, wide: true, sort: (r) => r.ttft.p99, text: (r) => seconds(r.ttft.p99), why: () => "no streamed call" },
        { id: "share", label: "of the wait", num: true, wide: true, sort: (r) => r.ttft.share, text: (r) => percent(r.ttft.share), why: () => "no streamed call", hint: "Time to first token in all the time that these calls took" },
        { id: "requests", label: "Req/s", num: true, wide: true, sort: (r) => r.requests_per_second, text: (r) => frequency(r.requests_per_second), why: () => "no time to count them over", hint: "Requests per second over the window, or what of it is kept" },
        { id: "output", label: "Output", num: true, wide: true, sort: (r) => r.tokens.output, text: (r) => count(r.tokens.output), why: () => "no token was counted", hint: "Output tokens" },
        { id: "cost", label: "Cost", num: true, sort: (r) => r.cost_usd, text: (r) => costOf(r), why: () => "no price is known for it", hint: "With a + where calls without a price are not in it" },
        { id: "per", label: "$ / M out", num: true, wide: true, sort: (r) => r.usd_per_million_output, text: (r) => usd(r.usd_per_million_output), why: () => "no price is known for it", hint: "Dollars per million output tokens" },
      ],
    });
    host.append(this.problem);
    this.rows = Object.fromEntries(KINDS.map(([kind]) => [kind, []]));
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

  update(kind, rows) {
    this.rows[kind] = rows;
    this.problem.textContent = "";
    this.show();
  }

  show() {
    const rows = this.rows[this.kind];
    this.scale = Math.max(...rows.map((row) => row.tps.p50 ?? 0), 1) * 1.06;
    this.table.update(rows);
  }

  fail(message) {
    this.problem.textContent = `Cannot be shown: ${message}`;
  }
}

/** What can be compared: a word of the API, and ours. */
const KINDS = [["models", "Models"], ["workloads", "Workloads"], ["prompt_length", "Prompt length"], ["output_length", "Output length"], ["upstream_facts", "Hardware and engine"]];
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
