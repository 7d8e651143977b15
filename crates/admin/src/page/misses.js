// Why prompts missed the cache, over all sessions of the window.
import { other } from "./address.js";
import { h } from "./dom.js";
import { ago, count, usd } from "./format.js";
import { CAUSES } from "./words.js";

const SHOWN = 10;
const DAY = 86_400_000;

export class Misses {
  constructor(host) {
    this.panel = h("section", { class: "misses", hidden: true, "aria-labelledby": "misses-title" });
    host.append(this.panel);
  }

  update({ breaks, since, until }) {
    this.panel.hidden = breaks.length === 0;
    if (breaks.length === 0) return;
    const days = Math.max((new Date(until ?? Date.now()) - new Date(since)) / DAY, 1 / 24);
    const heads = [["Agent"], ["Cause"], ["Calls", "num"], ["Tokens", "num"], ["Cost", "num"], ["Cost a day", "num"], ["Since"], ["Last"]];
    const head = heads.map(([label, kind]) => h("th", { scope: "col", class: kind ?? null }, label));
    const rows = breaks.slice(0, SHOWN).map((row) => this.row(row, days));
    const table = h("table", {}, h("caption", { class: "vh" }, "Prompt-cache misses by cause"), h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows));
    const more = breaks.length > SHOWN ? h("p", { class: "muted small" }, `The ${SHOWN} causes with most missed tokens of ${breaks.length}.`) : null;
    this.panel.replaceChildren(h("h3", { id: "misses-title" }, "Prompt-cache misses by cause"), h("div", { class: "scroll", role: "region", "aria-label": "Prompt-cache misses by cause", tabindex: "0" }, table), ...(more ? [more] : []));
  }

  row({ agent, cause, section, calls, tokens, cost_usd: cost, first_at: first, last_at: last }, days) {
    const name = agent ? h("a", { href: other("sessions", { agent }) }, agent) : "no agent named";
    const words = section ? `the prompt changed: ${section}` : (CAUSES[cause] ?? cause);
    const figures = [count(calls), count(tokens), usd(cost) ?? "–", cost === null ? "–" : usd(cost / days)].map((figure) => h("td", { class: "num" }, figure));
    return h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, words), figures, h("td", {}, ago(first)), h("td", {}, ago(last)));
  }
}
