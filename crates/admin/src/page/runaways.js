// Sessions that run away: what of each is above its ceiling.
import { get } from "./api.js";
import { sessionHref } from "./address.js";
import { h, keyed, text } from "./dom.js";
import { ago, count, plural, short, usd } from "./format.js";

/** How many times what is usual, where the ceiling goes by that. */
const times = (value, usual) => (usual ? `, ${count(value / usual)} times the usual value` : "");

const REASONS = {
  tokens: ({ value, limit, usual }) => `${count(value)} tokens a minute, above ${count(limit)}${times(value, usual)}`,
  dollars: ({ value, limit, usual }) => `${usd(value)} a minute, above ${usd(limit)}${times(value, usual)}`,
  same_tool_call: ({ value }) => `the same tool call ${count(value)} times`,
};

/** What is above its ceiling, in words. */
export const why = ({ figures }) => figures.map((figure) => REASONS[figure.reason]?.(figure) ?? figure.reason).join("; ");

export class Runaways {
  constructor(host) {
    this.title = h("h3", { id: "runaways-title" });
    this.list = h("ul", { class: "runaways" });
    this.section = h("section", { class: "note problem", "aria-labelledby": "runaways-title", hidden: true }, this.title, this.list);
    host.append(this.section);
  }

  /** Asks for them and shows them; `null` where the proxy does not answer. */
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
