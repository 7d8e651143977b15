// Compares two sessions: the session of the view, and the session in the parameter `with`.
import { address, change, sessionHref } from "./address.js";
import { get } from "./api.js";
import { h } from "./dom.js";
import { count, known, percent, rate, seconds, short, usd } from "./format.js";

const ROWS = [
  ["Cost", ({ session }) => session.cost_usd, usd],
  ["Duration", ({ session }) => session.seconds.wall, seconds],
  ["Model time", ({ session }) => session.seconds.model, seconds],
  ["Between calls", ({ session }) => session.seconds.tools, seconds],
  ["Calls", ({ session }) => session.total_calls, count],
  ["Failed", ({ session }) => session.errors, count],
  ["TTFT p50", ({ session }) => session.seconds.ttft_p50, seconds],
  ["TPS", ({ session }) => session.tps.output, rate],
  ["Input tokens", ({ session }) => session.tokens.input, count],
  ["Cached input tokens", ({ session }) => session.tokens.cached_input, count],
  ["Output tokens", ({ session }) => session.tokens.output, count],
  ["Reasoning tokens", ({ session }) => session.tokens.reasoning, count],
  ["Prompt cache misses", ({ analysis }) => analysis.cache_breaks.length, count],
];

export class Beside {
  constructor(host) {
    this.input = h("input", { type: "search", placeholder: "Id of another session", "aria-label": "Id of another session" });
    const submit = (event) => {
      event.preventDefault();
      change({ with: this.input.value.trim().slice(0, 200) || null });
    };
    const form = h("form", { class: "head", on: { submit } }, this.input, h("button", { type: "submit" }, "Compare"));
    this.table = h("div");
    host.append(form, this.table);
  }

  /** Compares `session` with the session in the address. */
  async update(session) {
    const { with: id = "" } = address.params;
    this.input.value = id;
    this.wanted = `${session.id} ${id}`;
    if (id === "") return this.table.replaceChildren();
    const { wanted } = this;
    try {
      const pair = await Promise.all([session.id, id].map(whole));
      if (this.wanted === wanted) this.table.replaceChildren(table(pair));
    } catch (error) {
      if (this.wanted === wanted) this.table.replaceChildren(h("p", { class: "note problem" }, `${id} cannot be compared: ${error.message}`));
    }
  }
}

/** A session's sums and its analysis. */
async function whole(id) {
  const path = `sessions/${encodeURIComponent(id)}`;
  const [session, analysis] = await Promise.all([get(path, { limit: 1 }), get(`${path}/analysis`)]);
  return { session, analysis };
}

function table(pair) {
  const names = pair.map(({ session: { id } }) => h("th", { scope: "col", class: "num" }, h("a", { href: sessionHref(id), title: id }, short(id))));
  const head = h("tr", {}, h("th", { scope: "col" }, "Figure"), names, h("th", { scope: "col", class: "num" }, "Change"));
  const rows = ROWS.map(([label, value, write]) => {
    const [one, other] = pair.map(value);
    const cells = [one, other].map((figure) => h("td", { class: "num" }, write(figure) ?? "–"));
    return h("tr", {}, h("th", { scope: "row" }, label), cells, h("td", { class: "num" }, difference(one, other)));
  });
  return h("div", { class: "scroll", role: "region", "aria-label": "Comparison of two sessions", tabindex: "0" }, h("table", { class: "pair" }, h("caption", { class: "vh" }, "Comparison of two sessions"), h("thead", {}, head), h("tbody", {}, rows)));
}

function difference(one, other) {
  if (!known(one) || !known(other) || one === 0) return "–";
  const more = (other - one) / one;
  return more === 0 ? "the same" : `${more > 0 ? "+" : "−"}${percent(Math.abs(more))}`;
}
