// The cost by a dimension, and the calls without a price.
import { DIMENSIONS, FILTERS, address, change, other, same } from "./address.js";
import { SPENT_BY } from "./costs.js";
import { h, keyed, meter, text } from "./dom.js";
import { nameIn } from "./names.js";
import { known, list, percent, plural, usd } from "./format.js";

export class Cost {
  constructor(host) {
    this.rows = [];
    this.sum = h("p", { class: "note push" });
    this.sum.style.marginTop = "0";
    this.by = h("select", { on: { change: () => change({ cost: this.by.value === "model" ? null : this.by.value }) } }, SPENT_BY.map((kind) => h("option", { value: kind }, DIMENSIONS[kind])));
    this.list = h("ul", { class: "shares" });
    this.note = h("p", { class: "note" });
    this.over = h("a", {}, "Over time");
    host.append(h("div", { class: "head" }, h("label", { class: "muted" }, "By ", this.by), this.sum, this.over), this.list, this.note);
  }

  /** Shows the groups of the dimension in the address. */
  update(rows) {
    this.rows = rows;
    this.by.value = address.params.cost ?? "model";
    this.over.href = other("costs", { by: this.by.value });
    this.show();
  }

  show() {
    const { rows } = this;
    const priced = rows.filter((row) => known(row.cost_usd)).sort((one, other) => other.cost_usd - one.cost_usd);
    const all = priced.reduce((sum, row) => sum + row.cost_usd, 0);
    const unpriced = rows.filter((row) => missed(row) > 0);
    text(this.sum, priced.length > 0 ? `${usd(all)} in this window` : "");
    keyed(this.list, priced.slice(0, 10), (row) => row.name ?? "", () => h("li", { class: "share" }), (item, row) => {
      const share = all > 0 ? row.cost_usd / all : 0;
      const per = known(row.usd_per_million_output) ? `, ${usd(row.usd_per_million_output)} / M output tokens, including input` : "";
      const by = address.params.cost ?? "model";
      const leads = row.name !== null && FILTERS.includes(by) ? same({ [by]: row.name }) : null;
      const sign = `${nameOf(row)} ${row.cost_usd} ${share}${per}${leads}`;
      if (item.sign === sign) return;
      item.sign = sign;
      item.replaceChildren(
        h("span", { class: "name", title: nameOf(row) }, leads ? h("a", { href: leads }, nameOf(row)) : nameOf(row)),
        h("span", {}, h("strong", {}, usd(row.cost_usd)), h("span", { class: "muted" }, ` ${percent(share)}${per}`)),
        meter(share),
      );
    });
    text(this.note, this.missing(rows, priced, unpriced));
  }

  missing(rows, priced, unpriced) {
    if (rows.length === 0) return "No calls in this window.";
    const more = priced.length > 10 ? `The first 10 of ${priced.length}. ` : "";
    if (unpriced.length === 0) return more;
    const calls = unpriced.reduce((sum, row) => sum + missed(row), 0);
    const names = list(unpriced.map(nameOf), 3);
    return `${more}${plural(calls, "call")} of ${names} had no known price and are not included. Configure a price per token, or the hourly price of your own GPUs.`;
  }
}

const nameOf = (row) => nameIn(address.params.cost ?? "model", row.name) ?? "calls without a name";
/** The number of calls without a price. */
export const missed = (row) => row.unpriced_calls ?? (known(row.cost_usd) ? 0 : row.calls);
