// The history of alerts: marks of where each began and ended.
import { get } from "./api.js";
import { other } from "./address.js";
import { capsuleButton } from "./save.js";
import { csvButton } from "./csv.js";
import { h } from "./dom.js";
import { plural, seconds, time } from "./format.js";

const LIMIT = 1000;
/** Milliseconds before an alert that its file has, so that there is something to compare with. */
const BEFORE = 30 * 60_000;

export class Alerts {
  constructor(host) {
    this.note = h("p", { class: "muted", role: "status" });
    this.rows = [];
    const names = ["Alert", "Severity", "Began", "Lasted", "What it said", "As a file"];
    this.body = h("tbody");
    const head = h("tr", {}, names.map((name) => h("th", { scope: "col" }, name)));
    const table = h("table", { class: "alerts" }, h("caption", { class: "vh" }, "Alerts, the newest first"), h("thead", {}, head), this.body);
    host.append(h("div", { class: "head" }, this.note, csvButton("alerts", () => this.rows)), h("div", { class: "scroll", role: "region", "aria-label": "Alerts, the newest first", tabindex: "0" }, table));
  }

  async load() {
    try {
      const { marks, store } = await get("marks", { kind: "alert", limit: LIMIT });
      const rows = paired(marks);
      const sign = JSON.stringify(rows);
      if (this.sign === sign) return;
      Object.assign(this, { sign, rows });
      this.body.replaceChildren(...rows.map(row));
      const where = store === "memory" ? ", since the process began: a ledger remembers more" : ", as far as the ledger goes back";
      this.note.textContent = rows.length === 0 ? `No alert${where}.` : `${plural(rows.length, "alert")}${marks.length === LIMIT ? ", the last of them" : ""}${where}.`;
    } catch (error) {
      this.note.textContent = `Cannot be shown: ${error.message}`;
    }
  }
}

/** Alerts of marks, which come newest first: each begin with the end that follows it. */
export function paired(marks) {
  const ends = new Map();
  const rows = [];
  for (const { time: at, text, tags: [key, edge] } of marks) {
    if (edge === "end") ends.set(key, at);
    else if (edge === "begin") {
      const [, severity, summary] = text.match(/^alert \((\w+)\): (.*)$/s) ?? [null, null, text];
      rows.push({ key, name: key.slice(0, key.lastIndexOf("/")), severity, summary, began: at, ended: ends.get(key) ?? null });
      ends.delete(key);
    }
  }
  return rows;
}

function row({ name, severity, summary, began, ended }) {
  const from = new Date(Date.parse(began) - BEFORE).toISOString();
  const lasted = ended === null ? h("span", { class: `tag ${severity === "page" ? "bad" : "warn"}` }, "fires") : seconds((Date.parse(ended) - Date.parse(began)) / 1000);
  const calls = other("calls", { from, to: ended, since: null, outcome: null });
  const file = capsuleButton(() => ({ since: from, until: ended }), "Save");
  return h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, severity ?? "–"), h("td", {}, h("a", { href: calls, title: "The calls of that time" }, time(began, true))), h("td", {}, lasted), h("td", { class: "said" }, summary), h("td", {}, file));
}
