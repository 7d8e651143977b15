// How many calls have a cost and a TPS, and why others have none.
import { get } from "./api.js";
import { other } from "./address.js";
import { h } from "./dom.js";
import { filters } from "./filters.js";
import { count, plural } from "./format.js";
import { unavailable, unpriced } from "./words.js";

/** Links to the calls without a figure, by reason, the most frequent first. */
function without(parameter, reasons, words) {
  const sorted = Object.entries(reasons).sort(([, one], [, another]) => another - one);
  return sorted.flatMap(([reason, calls], at) => {
    const [short, sentence] = words(reason);
    const says = `${count(calls)} ${short}`;
    // Records of older versions have no reason, so no filter finds them.
    const shown = reason === "unknown" ? h("span", {}, says) : h("a", { href: other("calls", { [parameter]: reason }), title: sentence }, says);
    return [at === 0 ? " (" : ", ", shown, at === sorted.length - 1 ? ")" : ""];
  });
}

export class Coverage {
  constructor(host) {
    this.host = host;
  }

  async load(current) {
    const found = await get("coverage", filters());
    if (current()) this.show(found);
  }

  show({ calls, with_cost: priced, with_speed: timed, cost_unavailable: noCost, tps_unavailable: noSpeed, skipped_events: skipped }) {
    const sign = JSON.stringify([other("calls"), calls, noCost, noSpeed, skipped]);
    if (sign === this.sign) return;
    this.sign = sign;
    const says = [
      `${count(priced)} of ${plural(calls, "call")} have a cost`,
      ...without("cost_unavailable", noCost, unpriced),
      `; ${count(timed)} have a speed`,
      ...without("tps_unavailable", noSpeed, unavailable),
      skipped > 0 ? `; ${plural(skipped, "event")} of streams could not be read` : "",
    ];
    this.host.replaceChildren(...(calls > 0 ? says : []));
  }
}
