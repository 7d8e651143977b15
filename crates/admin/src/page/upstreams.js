// The upstreams: pending requests, load of the engines, and ejected endpoints.
import { get } from "./api.js";
import { other } from "./address.js";
import { csvButton } from "./csv.js";
import { h } from "./dom.js";
import { filters, names } from "./filters.js";
import { count, frequency, percent, rate, seconds } from "./format.js";
import { missingPods } from "./pods.js";
import { Table } from "./table.js";
import { severity } from "./tiles.js";

const unread = (u) => (u.engine ? (u.engine.up ? "the engine does not report this figure" : "the engine's metrics cannot be read") : "metrics_url of the upstream is not set");

export class Upstreams {
  constructor(host) {
    this.rows = [];
    this.problem = h("p", { class: "note problem" });
    host.append(h("div", { class: "head" }, h("p", { class: "note" }, "Connections and engines show the present state. TPS, TTFT and failures cover the calls that match the filters."), h("span", { class: "push" }), csvButton("upstreams", () => this.rows)), this.problem);
    const calls = (u) => u.of?.calls > 0;
    this.table = new Table(host, {
      label: "Upstreams",
      order: { id: "name", ascending: true },
      param: "sort",
      key: (u) => u.name,
      nothing: () => "No upstream is configured.",
      columns: [
        { id: "name", label: "Upstream", head: true, clip: true, sort: (u) => u.name, text: (u) => u.name, node: (u) => h("a", { href: other("now", { upstream: u.name }) }, u.name) },
        { id: "in_flight", label: "In flight", num: true, sort: (u) => u.in_flight, text: (u) => count(u.in_flight), hint: "Requests in flight at the endpoints" },
        { id: "pending", label: "Pending", num: true, sort: (u) => u.pending, text: (u) => count(u.pending), node: (u) => figure(count(u.pending), u.pending > 0 ? "warn" : ""), hint: "Requests that wait in the proxy for a connection" },
        { id: "queue", label: "Engine queue", num: true, sort: (u) => u.engine?.queue_depth, text: (u) => count(u.engine?.queue_depth), why: unread, node: (u) => figure(count(u.engine.queue_depth), u.engine.queue_depth > 0 ? "warn" : ""), hint: "Requests that wait in the engine, from the engine's metrics" },
        { id: "running", label: "Running", num: true, wide: true, sort: (u) => u.engine?.running, text: (u) => count(u.engine?.running), why: unread },
        { id: "kv", label: "KV cache", num: true, sort: (u) => u.engine?.kv_cache, text: (u) => percent(u.engine?.kv_cache), why: unread, node: (u) => figure(percent(u.engine.kv_cache), u.engine.kv_cache > 0.9 ? "bad" : u.engine.kv_cache > 0.75 ? "warn" : ""), hint: "Share of the KV cache in use, from the engine's metrics" },
        { id: "endpoints", label: "Endpoints", sort: (u) => ejected(u).length, text: (u) => endpoints(u), node: (u) => h("span", { title: u.endpoints.map(({ name, in_flight: now }) => `${name}: ${now} in flight`).join("\n") }, h("span", { class: ejected(u).length > 0 ? "tag bad" : "" }, endpoints(u))), why: () => "no request has resolved its name yet" },
        { id: "connections", label: "Connections", num: true, wide: true, sort: (u) => u.connections, text: (u) => count(u.connections) },
        { id: "refused", label: "Refused", num: true, wide: true, sort: (u) => u.refused, text: (u) => count(u.refused), hint: "Requests refused because no connection became free, since the process started" },
        { id: "tps", label: "TPS p50", num: true, sort: (u) => u.of?.tps.p50, text: (u) => rate(u.of?.tps.p50), why: () => "no calls with TPS" },
        { id: "ttft", label: "TTFT p95", num: true, wide: true, sort: (u) => u.of?.ttft.p95, text: (u) => seconds(u.of?.ttft.p95), why: () => "no streamed calls" },
        { id: "rate", label: "Req/s", num: true, wide: true, sort: (u) => u.of?.requests_per_second, text: (u) => frequency(u.of?.requests_per_second), why: () => "no calls" },
        { id: "failed", label: "Failed", num: true, sort: (u) => (calls(u) ? u.of.errors / u.of.calls : null), text: (u) => (calls(u) ? percent(u.of.errors / u.of.calls) : null), why: () => "no calls", node: (u) => h("a", { class: `tag ${severity(u.of.errors / u.of.calls)}`, href: other("calls", { upstream: u.name, outcome: "failed" }) }, percent(u.of.errors / u.of.calls)) },
        { id: "knee", label: "Knee", num: true, wide: true, sort: (u) => u.knee?.concurrency, text: (u) => count(u.knee?.concurrency), why: (u) => u.reason ?? "not enough data", hint: "Concurrency above which throughput hardly grows" },
      ],
    });
  }

  async load(current) {
    try {
      const [{ upstreams, pods }, { groups }, { upstreams: capacity }] = await Promise.all([get("upstreams"), get("groups", { ...filters(), by: "upstream", limit: 1000 }), get("capacity", filters())]);
      if (!current()) return;
      const by = (rows) => new Map(rows.map((row) => [row.name, row]));
      const [of, knees] = [by(groups), by(capacity)];
      const { upstream } = names();
      const shown = upstreams.filter(({ name }) => !upstream || name === upstream);
      this.rows = shown.map((one) => ({ ...one, in_flight: one.endpoints.reduce((sum, { in_flight: now }) => sum + now, 0), of: of.get(one.name) ?? null, knee: knees.get(one.name)?.knee ?? null, reason: knees.get(one.name)?.reason ?? null }));
      this.problem.textContent = missingPods(pods);
      this.table.update(this.rows);
    } catch (error) {
      if (current()) this.problem.textContent = `Could not load: ${error.message}`;
    }
  }
}

const figure = (value, kind) => h("span", { class: kind ? `tag ${kind}` : null }, value);
const ejected = (u) => u.endpoints.filter((endpoint) => endpoint.ejected_seconds !== null);
const endpoints = (u) => (u.endpoints.length === 0 ? null : ejected(u).length > 0 ? `${ejected(u).length} of ${count(u.endpoints.length)} ejected` : count(u.endpoints.length));
