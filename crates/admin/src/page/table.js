// A table that keeps its row elements while their values change.
import { address, change } from "./address.js";
import { h, keyed, unknown, unpressed } from "./dom.js";

/**
 * `columns` have `id`, `label` and `text(item)`. If the text is null, the value is unknown and `why(item)` gives the reason.
 * `node(item)` replaces the text and is called again only if the text changes. `sort(item)` is the sort key, or `true` if
 * the server sorts. Other members: `num`, `wide` (hidden on a phone), `spare` (shown only on wide screens), `fleet` (shown
 * only for a fleet), `scored` (shown only if a row has a score), `head` (the name of the row), `hint`. `order` is `{id, ascending}`; `param` is the parameter of the
 * address that stores it. With `remote` the caller sorts the rows.
 */
export class Table {
  constructor(host, { label, columns, key, order, param, remote, tall, nothing, kind = "" }) {
    Object.assign(this, { columns, key, order, initial: order, param, remote, nothing, items: [] });
    this.heads = columns.map((column) => this.headCell(column));
    this.body = h("tbody");
    this.table = h("table", { class: kind }, h("caption", { class: "vh" }, label), h("thead", {}, h("tr", {}, this.heads)), this.body);
    this.empty = h("p", { class: "nothing", hidden: true });
    this.scroll = h("div", { class: tall ? "scroll tall" : "scroll", role: "region", "aria-label": label, tabindex: "0" }, this.table);
    host.append(this.scroll, this.empty);
    this.showOrder();
  }

  headCell(column) {
    const hint = column.hint;
    const label = column.sort ? h("button", { type: "button", title: hint }, column.label) : column.label;
    const cell = h("th", { scope: "col", class: classes(column), title: column.sort ? null : hint }, label);
    if (column.sort) label.addEventListener("click", () => this.clicked(column));
    return cell;
  }

  clicked(column) {
    const same = this.order?.id === column.id;
    const ascending = same ? !this.order.ascending : Boolean(column.head);
    if (this.param) return change({ [this.param]: `${ascending ? "" : "-"}${column.id}` });
    this.order = { id: column.id, ascending };
    this.showOrder();
    this.update(this.items);
  }

  /** Takes the order from the address. */
  follow() {
    const written = address.params[this.param];
    const id = written?.replace(/^-/, "");
    const known = this.columns.some((column) => column.id === id && column.sort);
    if (written && !known) address.problems.push(`\`${this.param}\` must be one of ${this.columns.filter(({ sort }) => sort).map((column) => column.id).join(", ")}`);
    this.order = known ? { id, ascending: !written.startsWith("-") } : this.initial;
    this.showOrder();
    if (!this.remote) this.update(this.items);
  }

  showOrder() {
    this.columns.forEach((column, place) => {
      const ours = column.sort && this.order?.id === column.id;
      if (ours) this.heads[place].setAttribute("aria-sort", this.order.ascending ? "ascending" : "descending");
      else this.heads[place].removeAttribute("aria-sort");
    });
  }

  /** Unknown values come last in both directions. */
  inOrder(items) {
    const column = this.columns.find((column) => column.id === this.order?.id);
    if (this.remote || typeof column?.sort !== "function") return items;
    const sign = this.order.ascending ? 1 : -1;
    const last = (value) => value === null || value === undefined;
    return [...items].sort((one, other) => {
      const [a, b] = [column.sort(one), column.sort(other)];
      if (last(a) || last(b)) return last(a) - last(b);
      return (typeof a === "string" ? a.localeCompare(b) : a - b) * sign;
    });
  }

  update(items) {
    this.items = items;
    unpressed(this, () => this.show());
  }

  show() {
    const { items } = this;
    this.scroll.hidden = items.length === 0;
    this.empty.hidden = items.length !== 0;
    this.empty.textContent = items.length === 0 ? (this.nothing?.() ?? "No rows.") : "";
    keyed(this.body, this.inOrder(items), this.key, () => this.row(), (row, item) => this.fill(row, item));
  }

  row() {
    return h("tr", {}, this.columns.map((column) => h(column.head ? "th" : "td", { class: classes(column), scope: column.head ? "row" : null })));
  }

  fill(row, item) {
    this.columns.forEach((column, place) => {
      const cell = row.children[place];
      const value = column.text(item);
      const sign = `${value}`;
      if (cell.sign === sign) return;
      cell.sign = sign;
      if (value === null || value === undefined) cell.replaceChildren(unknown(column.why?.(item)));
      else if (column.node) cell.replaceChildren(column.node(item));
      else cell.textContent = value;
    });
  }
}

const classes = (column) => [column.num && "num", column.wide && "wide", column.spare && "spare", column.clip && "clip", column.fleet && "of-fleet", column.scored && "scored"].filter(Boolean).join(" ") || null;
