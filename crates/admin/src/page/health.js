// A list of problems. Screen readers announce a problem when it appears or disappears, not when its figures change.
import { other, sessionHref } from "./address.js";
import { byId, h, keyed, text } from "./dom.js";
import { known, percent, plural, short } from "./format.js";
import { articleId, firingAlert, sloName, stateOf } from "./objectives.js";
import { fleetFindings } from "./pods.js";
import { why } from "./runaways.js";
import { severity } from "./tiles.js";
import { silence } from "./words.js";

/** The number of runaway sessions that are listed by name. */
const SHOWN = 3;

export class Health {
  constructor(list) {
    this.list = list;
    this.facts = { streams: [], slos: [], sums: null, about: null, link: null, runaways: [], fleet: null };
  }

  know(facts) {
    Object.assign(this.facts, facts);
    const found = this.findings();
    const keys = found.map(({ key }) => key).join();
    keyed(this.list, found, ({ key }) => key, ({ leads }) => h("li", {}, leads ? h("a") : h("span"), h("p", { class: "cause" })), (item, { kind, says, leads, cause }) => {
      item.className = kind;
      const [words, why] = item.children;
      why.hidden = !cause;
      text(why, cause);
      if (leads) words.setAttribute("href", leads);
      text(words, says);
    });
    if (keys !== this.keys) text(byId("health-said"), found.map(({ says }) => says).join(". "));
    this.keys = keys;
  }

  findings() {
    const { streams, slos, sums, about, link, runaways, fleet } = this.facts;
    const found = [];
    const say = (key, kind, says, leads, cause) => found.push({ key, kind, says, leads, cause });
    if (link) say("link", "bad", link);
    for (const [key, kind, says] of fleet ? fleetFindings(fleet) : []) say(key, kind, says, other("pods"));
    if (about && !about.ready) say("ready", "warn", "Draining: do not send new traffic");
    for (const slo of slos) {
      const state = stateOf(slo);
      if (state) say(`${sloName(slo)} ${firingAlert(slo) ? "fires" : "is spent"}`, state.kind, `${sloName(slo)} ${state.says}`, `#${articleId(slo)}`, slo.cause?.sentence);
    }
    const threshold = about?.measure?.stall_threshold ?? 1;
    const silent = streams.filter((stream) => known(stream.silent) && stream.silent > threshold);
    if (silent.length > 0) say("silent", "warn", `${plural(silent.length, "stream")} ${silence(threshold)}`, "#streams-title");
    const looping = streams.filter(({ repetition }) => repetition);
    if (looping.length > 0) say("looping", "warn", `${plural(looping.length, "stream")} ${looping.length > 1 ? "repeat themselves" : "repeats itself"}`, "#streams-title");
    for (const one of runaways.slice(0, SHOWN)) say(`runaway ${one.session}`, "warn", `Runaway session ${short(one.session)}: ${why(one)}`, sessionHref(one.session));
    if (runaways.length > SHOWN) say("runaways", "warn", plural(runaways.length - SHOWN, "more runaway session"), other("sessions"));
    const share = sums?.calls > 0 ? sums.errors / sums.calls : null;
    if (severity(share)) say("errors", severity(share), `${percent(share)} of calls failed in this window`, other("calls", { outcome: "failed" }));
    if (found.length === 0) say("well", "good", this.well());
    return found;
  }

  well() {
    const { slos, sums } = this.facts;
    const calls = sums?.calls > 0 ? (sums.errors === 0 ? "no failed calls" : `${percent(sums.errors / sums.calls)} of calls failed`) : null;
    const promises = slos.length > 0 ? `${plural(slos.length, "objective")} within budget` : null;
    return `No problems: ${[promises, calls].filter(Boolean).join(", ") || "no calls yet"}`;
  }
}
