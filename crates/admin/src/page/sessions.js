// The list of sessions. The server sorts, filters and pages, so that many sessions cost no more than a few.
import { get } from "./api.js";
import { address, change, same, sessionHref } from "./address.js";
import { csvButton } from "./csv.js";
import { h, text } from "./dom.js";
import { Misses } from "./misses.js";
import { Table } from "./table.js";
import { ago, count, frequency, known, list, plural, rate, seconds, short, time, usd } from "./format.js";

const SETTLE = 250; // milliseconds after the last key

export class Sessions {
  constructor(host, filters) {
    Object.assign(this, { filters, number: 1, cursors: [null], next: null });
    this.search = h("input", { type: "search", class: "search", placeholder: "Session or agent contains …", "aria-label": "Session or agent contains", on: { input: () => this.typed() } });
    this.found = h("p", { class: "muted push", role: "status" });
    this.tasks = h("p", { class: "note", id: "tasks" });
    host.append(h("div", { class: "head" }, this.search, this.found, csvButton("sessions", () => this.table.items)), this.tasks);
    this.table = new Table(host, {
      label: "Sessions",
      order: { id: "last_at", ascending: false },
      param: "sort",
      remote: true,
      key: (session) => session.id,
      nothing: () => (Object.keys(address.params).length > 0 ? "No sessions match in this window." : "No sessions yet. A call belongs to a session if its agent sends x-tokengauge-session or the session header of its SDK."),
      columns: COLUMNS,
    });
    this.problem = h("p", { class: "note problem" });
    this.back = h("button", { type: "button", on: { click: () => this.turn(-1) } }, "← Newer");
    this.forth = h("button", { type: "button", on: { click: () => this.turn(1) } }, "Older →");
    this.page = h("span");
    this.rows = h("select", { on: { change: () => change({ rows: this.rows.value }) } }, [25, 50, 100, 250].map((n) => h("option", { value: n }, n)));
    host.append(this.problem, h("div", { class: "pager" }, this.back, this.forth, this.page, h("label", {}, "Rows ", this.rows)));
    this.misses = new Misses(host);
  }

  typed() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      this.timer = null;
      if (address.view === "sessions") change({ q: this.search.value.trim().slice(0, 200) || null }, { replace: true });
    }, SETTLE);
  }

  /** Shows the list of the address. After a link to a later page, only the first page and this one have known cursors. */
  restart() {
    const { q = "", rows = "50", cursor = null, page = "1" } = address.params;
    this.number = cursor ? Math.max(Number(page), 2) : 1;
    const list = same({});
    if (list !== this.list) this.cursors = [null];
    this.list = list;
    if (cursor) this.cursors[this.number - 1] = cursor;
    // The text that is being typed will be in the address soon.
    if (!this.timer && this.search.value.trim() !== q) this.search.value = q;
    this.rows.value = rows;
    this.size = Number(rows);
    this.table.follow();
    return this.load();
  }

  turn(by) {
    const page = this.number + by;
    const cursor = by > 0 ? this.next : (this.cursors[page - 1] ?? null);
    change({ cursor, page: cursor ? page : null });
  }

  async load() {
    this.asking?.abort();
    const asking = new AbortController();
    this.asking = asking;
    const { id, ascending } = this.table.order;
    const parameters = { ...this.filters(), q: address.params.q, sort: id, order: ascending ? "asc" : "desc", limit: this.size, cursor: this.cursors[this.number - 1] };
    try {
      const asked = ["tasks", "cache-breaks"].map((path) => get(path, this.filters(), asking.signal));
      const [answer, tasks, misses] = await Promise.all([get("sessions", parameters, asking.signal), ...asked]);
      this.show(answer);
      this.misses.update(misses);
      text(this.tasks, said(tasks));
    } catch (error) {
      if (asking.signal.aborted) return;
      this.problem.textContent = `Could not load: ${error.message}`;
    }
  }

  show({ sessions, next_cursor }) {
    this.problem.textContent = "";
    this.next = next_cursor;
    this.table.update(sessions);
    const first = (this.number - 1) * this.size;
    this.back.disabled = this.number === 1;
    this.forth.disabled = next_cursor === null;
    text(this.page, sessions.length > 0 ? `${count(first + 1)}–${count(first + sessions.length)}` : "");
    text(this.found, sessions.length === 0 ? "" : next_cursor || first > 0 ? `Page ${this.number}` : `${count(sessions.length)} in this window`);
  }
}

/** Statistics of sessions as tasks, from the first call to the last. */
const said = ({ tasks, per_minute: often, seconds: took }) =>
  tasks > 0 ? `${plural(tasks, "task")}${known(often) ? `, ${frequency(often)} a minute` : ""}: duration p50 ${seconds(took.p50)}, p95 ${seconds(took.p95)}, from first call to last` : "";

const failed = (s) => (s.errors > 0 ? h("span", { class: "tag bad" }, count(s.errors)) : h("span", {}, "0"));

const COLUMNS = [
  { id: "id", label: "Session", head: true, text: (s) => s.id, node: (s) => h("a", { href: sessionHref(s.id), title: s.id }, short(s.id)) },
  { id: "agents", label: "Agents", wide: true, clip: true, text: (s) => list(s.agents) || null, why: () => "no agent is named" },
  { id: "models", label: "Models", wide: true, clip: true, text: (s) => list(s.models) || null, why: () => "no model is named" },
  { id: "last_at", label: "Last call", sort: true, text: (s) => (s.in_flight > 0 ? "in flight" : ago(s.last_at)), node: (s) => (s.in_flight > 0 ? h("span", { class: "tag good" }, "in flight") : h("span", { title: time(s.last_at, true) }, ago(s.last_at))) },
  { id: "calls", label: "Calls", num: true, sort: true, wide: true, text: (s) => count(s.calls) },
  { id: "errors", label: "Failed", num: true, sort: true, wide: true, text: (s) => count(s.errors), node: failed },
  { id: "tokens", label: "Tokens", num: true, sort: true, wide: true, text: (s) => tokens(s), why: () => "no tokens were counted", hint: "Input → output" },
  { id: "duration", label: "Duration", num: true, sort: true, wide: true, text: (s) => seconds(s.seconds.wall) },
  { id: "share", label: "Model | tools", wide: true, text: (s) => `${s.seconds.model} ${s.seconds.tools}`, node: (s) => split(s.seconds), hint: "Time with calls in flight, and between calls" },
  { id: "ttft", label: "TTFT p50", num: true, sort: true, wide: true, text: (s) => seconds(s.seconds.ttft_p50), why: () => "no streamed calls" },
  { id: "tps", label: "TPS", num: true, sort: true, text: (s) => rate(s.tps.output), why: () => "no calls with TPS" },
  { id: "cost", label: "Cost", num: true, sort: true, text: (s) => cost(s), why: (s) => (s.unpriced_calls > 0 ? "its models have no known price" : "no billable tokens") },
];

const tokens = ({ tokens: { input, output } }) => (input === null && output === null ? null : `${count(input) ?? "–"} → ${count(output) ?? "–"}`);

/** The cost, with a + if calls without a price are not included. */
export const cost = (session) => (session.cost_usd === null ? null : `${usd(session.cost_usd)}${session.unpriced_calls > 0 ? " +" : ""}`);

function split({ wall, model, tools }) {
  const width = (part) => `${wall > 0 ? (part / wall) * 100 : 0}%`;
  const words = `model ${seconds(model)}, between calls ${seconds(tools)}`;
  const bar = h("span", { class: "stack", "aria-hidden": "true" }, h("i", { style: { width: width(model), background: "var(--answer)" } }), h("i", { class: "hatched", style: { width: width(tools) } }));
  bar.style.width = "90px";
  return h("span", { title: words }, bar, h("span", { class: "vh" }, words));
}
