// The history of alerts, read from the marks of their begins and ends.
import { get } from "./api.js";
import { other } from "./address.js";
import { capsuleButton } from "./save.js";
import { csvButton } from "./csv.js";
import { h, keyed, text } from "./dom.js";
import { plural, seconds, time } from "./format.js";
import { missingPods } from "./pods.js";
import { firingAlert, spentHref, stateOf } from "./objectives.js";

const LIMIT = 1000;
/** The milliseconds before an alert that its report includes for comparison. */
const BEFORE = 30 * 60_000;

export class Alerts {
  constructor(host) {
    this.note = h("p", { class: "muted", role: "status" });
    this.rows = [];
    const names = ["Alert", "Severity", "Start", "Duration", "Details", "Export"];
    this.body = h("tbody");
    // On a phone a row is a block, so roles keep the table's structure for screen readers.
    const head = h("tr", { role: "row" }, names.map((name) => h("th", { scope: "col", role: "columnheader" }, name)));
    this.body.setAttribute("role", "rowgroup");
    const table = h("table", { class: "alerts", role: "table" }, h("caption", { class: "vh" }, "Alerts, the newest first"), h("thead", { role: "rowgroup" }, head), this.body);
    host.append(h("div", { class: "head" }, this.note, csvButton("alerts", () => this.rows)), h("div", { class: "scroll", role: "region", "aria-label": "Alerts, the newest first", tabindex: "0" }, table));
  }

  async load() {
    try {
      const [{ marks, store, pods }, { slos }] = await Promise.all([get("marks", { kind: "alert", limit: LIMIT }), get("slos")]);
      const of = new Map(slos.map((slo) => [slo.name, slo]));
      const rows = paired(marks).map((alert) => ({ ...alert, ...now(alert, of.get(alert.name)) }));
      this.rows = rows;
      keyed(this.body, rows, ({ key, began }) => `${key} ${began}`, row, (made, alert) => {
        const slo = of.get(alert.name);
        const sign = JSON.stringify([alert, Boolean(slo)]);
        if (made.sign !== sign) fill(made, alert, slo);
        made.sign = sign;
      });
      const where = pods ? " of the pods" : store === "memory" ? " since the process started; a ledger keeps more" : " in the ledger";
      text(this.note, rows.length === 0 ? `No alert${where}. ${missingPods(pods)}`.trim() : `${plural(rows.length, "alert")}${marks.length === LIMIT ? ", the last of them" : ""}${where}. ${missingPods(pods)}`.trim());
    } catch (error) {
      this.note.textContent = `Could not load: ${error.message}`;
    }
  }
}

/** Pairs the marks of alerts, newest first: each begin with the end that follows it. */
export function paired(marks) {
  const ends = new Map();
  const rows = [];
  for (const { time: at, text: said, tags: [key, edge] } of marks) {
    if (edge === "end") ends.set(key, at);
    else if (edge === "begin") {
      const [, severity, summary] = said.match(/^alert \((\w+)\): (.*)$/s) ?? [null, null, said];
      rows.push({ key, name: key.slice(0, key.lastIndexOf("/")), severity, summary, began: at, ended: ends.get(key) ?? null });
      ends.delete(key);
    }
  }
  return rows;
}

/** The present state and cause of a firing alert's objective. */
function now({ ended }, slo) {
  const fires = ended === null && slo && firingAlert(slo);
  return { state: fires ? stateOf(slo).says : null, cause: fires ? (slo.cause?.sentence ?? null) : null };
}

/** A row whose button and link are kept while its texts change. */
function row(alert) {
  const [link, lasted, said] = [h("a", {}, time(alert.began, true)), h("td", { role: "cell" }), h("td", { role: "cell", class: "said" })];
  const cell = (content) => h("td", { role: "cell" }, content);
  const made = h("tr", { role: "row" }, h("th", { scope: "row", role: "rowheader" }, alert.name), cell(alert.severity ?? "–"), cell(link), lasted, said);
  made.append(cell(capsuleButton(() => made.asks, "Export")));
  made.parts = { link, lasted, said };
  return made;
}

/** `slo` is the alert's objective, if it is still configured. */
function fill(made, { severity, summary, began, ended, state, cause }, slo) {
  const { link, lasted, said } = made.parts;
  const since = new Date(Date.parse(began) - BEFORE).toISOString();
  made.asks = { slo: slo?.name, since, until: ended };
  const then = { from: since, to: ended };
  link.setAttribute("href", slo ? spentHref(slo, then) : other("calls", { ...then, since: null, outcome: null }));
  link.title = slo ? "Calls of that time that spent the error budget" : "Calls of that time";
  lasted.replaceChildren(ended === null ? h("span", { class: `tag ${severity === "page" ? "bad" : "warn"}` }, "firing") : seconds((Date.parse(ended) - Date.parse(began)) / 1000));
  const lines = [h("p", {}, summary), state && h("p", { class: "muted" }, `The objective ${state}.`), cause && h("p", {}, cause)];
  said.replaceChildren(...lines.filter(Boolean));
}
