// Runaway sessions, and which limit each exceeds.
import { get } from "./api.js";
import { sessionHref } from "./address.js";
import { h, keyed, text } from "./dom.js";
import { ago, count, plural, short, usd } from "./format.js";

/** The multiple of the usual value, if the limit depends on it. */
const times = (value, usual) => (usual ? `, ${count(value / usual)} times the usual value` : "");

const REASONS = {
  tokens: ({ value, limit, usual }) => `${count(value)} tokens a minute, above ${count(limit)}${times(value, usual)}`,
  dollars: ({ value, limit, usual }) => `${usd(value)} a minute, above ${usd(limit)}${times(value, usual)}`,
  same_tool_call: ({ value }) => `the same tool call ${count(value)} times`,
};

/** The exceeded limits, in words. */
export const why = ({ figures }) => figures.map((figure) => REASONS[figure.reason]?.(figure) ?? figure.reason).join("; ");

export class Runaways {
  constructor(host) {
    this.title = h("h3", { id: "runaways-title" });
    this.list = h("ul", { class: "runaways" });
    this.section = h("section", { class: "note problem", "aria-labelledby": "runaways-title", hidden: true }, this.title, this.list);
    host.append(this.section);
  }

  /** Loads and shows the runaways; null if the proxy does not respond. */
  async load() {
    try {
      const { total, runaways } = await get("runaways");
      this.show(total, runaways);
      return runaways;
    } catch (error) {
      console.debug("runaways:", error.message);
      return null;
    }
  }

  show(total, runaways) {
    this.section.hidden = total === 0;
    text(this.title, plural(total, "runaway session"));
    keyed(this.list, runaways, ({ session }) => session, ({ session }) => h("li", {}, h("a", { href: sessionHref(session), title: session }, short(session)), h("span")), (item, runaway) => {
      const of = runaway.agent ? ` of ${runaway.agent}` : "";
      text(item.lastElementChild, `${of}: ${why(runaway)} (began ${ago(runaway.since)})`);
    });
  }
}
