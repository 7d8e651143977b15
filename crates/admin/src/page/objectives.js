// Objectives: their remaining error budgets and burn rates.
import { href } from "./address.js";
import { BurnDowns } from "./budget.js";
import { capsuleButton } from "./save.js";
import { h, keyed, meter, text } from "./dom.js";
import { count, known, percent, promised, rate, seconds } from "./format.js";
import { objectivesSay, placeOf } from "./pods.js";
import { budget } from "./words.js";

/** The exhaustion of a budget is shown if it is at most this many seconds away. */
const SOON = 7 * 86_400;

export class Objectives {
  constructor(host) {
    this.burnDowns = new BurnDowns();
    this.list = h("div");
    this.none = h(
      "p",
      { class: "nothing", hidden: true },
      "No objective is configured. A ",
      h("code", {}, "[[slo]]"),
      " in the configuration defines one, such as ",
      h("code", {}, "ttft.at_most = \"500ms\""),
      "; ",
      h("code", {}, "tokengauge slo suggest"),
      " proposes objectives from recorded calls.",
    );
    this.from = h("p", { class: "note" });
    host.append(this.from, this.list, this.none);
  }

  /** `source` is the source of a fleet's objectives, and `total` is their number. */
  update(slos, source, total) {
    this.slos = slos;
    const more = total > slos.length ? ` The ${count(slos.length)} of ${count(total)} with the least remaining budget are shown.` : "";
    text(this.from, source ? `${objectivesSay(source)}${more}` : "");
    this.show();
    // Only a process has the history of its budget.
    if (!source) this.burnDowns.refresh(slos, () => this.show());
  }

  show() {
    const { slos } = this;
    this.none.hidden = slos.length > 0;
    keyed(this.list, slos, sloName, (slo) => h("article", { class: "slo", id: articleId(slo) }), (article, slo) => {
      const sign = JSON.stringify([slo.budget_remaining, slo.good, slo.bad, slo.burn, slo.alerts.map((a) => a.firing), slo.cause?.sentence, this.burnDowns.known.get(slo.name)?.at, slo.ratio]);
      if (article.sign === sign) return;
      article.sign = sign;
      article.replaceChildren(...this.article(slo));
    });
  }

  article(slo) {
    const left = slo.budget_remaining;
    const { value, unit, kind } = budget(left);
    const alert = firingAlert(slo);
    const events = slo.good + slo.bad;
    const met = events === 0 && slo.pod && slo.ratio !== null ? percent(slo.ratio) : events > 0 ? `${percent(slo.ratio)} of ${count(events)} ${slo.event === "request" ? "calls" : slo.event === "token" ? "tokens" : `slices of ${slo.event}`}` : "no events yet";
    return [
      h("h3", {}, h("a", { href: spentHref(slo), title: "Calls that spent the error budget" }, sloName(slo)), " ", alert ? h("span", { class: `tag ${alert.severity === "page" ? "bad" : "warn"}` }, `${alert.severity} firing${observed(alert)}`) : ""),
      h("p", { class: `left ${kind}` }, `${value} ${unit}`.trim()),
      meter(left, kind),
      this.burnDowns.curve(slo.name) ?? "",
      h("p", { class: "promise" }, `${slo.promise} for ${promised(slo.objective)} over ${slo.window}: ${met}`),
      h("p", { class: "burns" }, "Burn rate ", ...burns(slo), ending(slo)),
      slo.cause ? h("p", { class: "cause" }, slo.cause.sentence) : "",
      alert ? h("p", { class: "of-process" }, capsuleButton(() => ({ slo: slo.name }))) : "",
    ];
  }
}

/** The objective's name, with its pod. */
export const sloName = ({ name, pod }) => (pod ? `${name} · ${placeOf(pod)}` : name);

/** The id of an objective's element. */
export const articleId = (slo) => `slo-${encodeURIComponent(sloName(slo))}`;

/** The most severe firing alert of an objective. */
export function firingAlert(slo) {
  const firing = slo.alerts.filter((alert) => alert.firing);
  return firing.find((one) => one.severity === "page") ?? firing[0];
}

/** What is wrong with an objective, as `{kind, says}`; null if nothing is. */
export function stateOf(slo) {
  const alert = firingAlert(slo);
  if (alert) return { kind: alert.severity === "page" ? "bad" : "warn", says: `burns its budget ${rate(alert.burn_short)}× too fast` };
  return slo.budget_remaining <= 0 ? { kind: "bad", says: "has spent its budget" } : null;
}

/** The view of the calls that spent an objective's budget: within `time`, otherwise the window of the firing alert,
 * otherwise the objective's window. */
export function spentHref(slo, time = null) {
  const alert = firingAlert(slo);
  const { workload, route, upstream, team, cost_center, tenant } = slo.select;
  const within = time ?? { since: alert?.long ?? (slo.window === "month" ? "31d" : slo.window) };
  const { cluster, namespace, name: pod } = slo.pod ?? {};
  return href("calls", { slo: slo.name, workload, route, upstream, team, cost_center, tenant, cluster, namespace, pod, ...within });
}

/** The observed part of an alert's window, if it is not the whole window. */
const observed = ({ long, observed_seconds: seen }) => {
  const unit = { m: 60, h: 3600, d: 86_400 }[long.at(-1)] ?? 1;
  return seen < Number.parseInt(long, 10) * unit ? ` over ${seconds(seen)} of ${long}` : "";
};

function ending(slo) {
  const soon = slo.budget_remaining > 0 && slo.exhausted_in_seconds < SOON;
  const told = soon ? until(slo.exhausted_in_seconds) : null;
  return told ? ` — ${told}` : "";
}

function burns(slo) {
  const factors = Object.fromEntries(slo.alerts.map((alert) => [alert.long, alert.factor]));
  const told = slo.burn.filter((burn) => known(burn.rate) && (burn.window in factors || slo.alerts.length === 0));
  const parts = told.map(({ window, rate: speed }) => {
    const kind = speed > (factors[window] ?? 14.4) ? "bad" : speed > 1 ? "warn" : "";
    return [h("b", { class: kind }, `${rate(speed)}×`), ` ${window}`];
  });
  return parts.flatMap((part, place) => (place ? [", ", ...part] : part));
}

/** When a budget will be exhausted. */
const until = (left) => (known(left) ? `exhausted in ${seconds(left)} at this rate` : null);
