"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  const value = (row, column) => {
    const cell = row.cells[column];
    return "value" in cell.dataset ? Number(cell.dataset.value) : cell.textContent;
  };
  const compare = (one, other) => {
    // Unknown values come last in both directions.
    if (typeof one !== typeof other) return 0;
    return typeof one === "number" ? one - other : one.localeCompare(other, "en", { numeric: true });
  };
  const sort = (column) => {
    const head = heads[column];
    const named = head.classList.contains("name");
    const first = named ? "ascending" : "descending";
    const second = named ? "descending" : "ascending";
    const order = head.getAttribute("aria-sort") === first ? second : first;
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", order);
    const sign = order === "ascending" ? 1 : -1;
    const rows = [...body.rows].map((row) => [value(row, column), row]);
    const known = rows.filter(([value]) => named || typeof value === "number");
    const unknown = rows.filter(([value]) => !named && typeof value !== "number");
    known.sort(([one], [other]) => sign * compare(one, other));
    body.append(...[...known, ...unknown].map(([, row]) => row));
  };
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    button.addEventListener("click", () => sort(column));
    head.replaceChildren(button);
  });
}
