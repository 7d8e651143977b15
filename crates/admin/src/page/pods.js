// The pods of a fleet, why some cannot be reached, and the store of their calls.
import { get } from "./api.js";
import { other } from "./address.js";
import { csvButton } from "./csv.js";
import { h, text } from "./dom.js";
import { count, plural, rate, time } from "./format.js";
import { Table } from "./table.js";

const STATES = { connected: ["connected", "good"], connecting: ["connecting", ""], unreachable: ["not reachable", "bad"] };
const NAMED = 3; // names of pods in one sentence

/** The name of a pod, or its address. */
export const podName = (pod) => pod.name ?? pod.address;

/** The cluster, namespace and name of a pod. */
export const placeOf = (pod) => (pod ? [pod.cluster, pod.namespace, pod.name].filter(Boolean).join("/") : null);

export class Pods {
  constructor(host) {
    this.rows = [];
    this.store = h("p", { class: "note" });
    this.objectives = h("p", { class: "note" });
    this.problem = h("p", { class: "note problem" });
    host.append(h("div", { class: "head" }, this.store, h("span", { class: "push" }), csvButton("pods", () => this.rows)), this.objectives, this.problem);
    this.table = new Table(host, {
      label: "Pods, those that cannot be reached first",
      key: (pod) => pod.address,
      nothing: () => "No pods are followed. Set their addresses with --pods.",
      columns: [
        { id: "name", label: "Pod", head: true, clip: true, sort: podName, text: podName, node: (p) => h("a", { href: other("now", { pod: p.name }) }, podName(p)) },
        { id: "namespace", label: "Namespace", clip: true, sort: (p) => p.namespace, text: (p) => p.namespace, why: () => "not reported by the pod" },
        { id: "cluster", label: "Cluster", wide: true, clip: true, sort: (p) => p.cluster, text: (p) => p.cluster, why: () => "not reported by the pod" },
        { id: "state", label: "State", sort: (p) => p.state, text: (p) => STATES[p.state][0], node: (p) => h("span", { class: `tag ${STATES[p.state][1]}` }, STATES[p.state][0]) },
        { id: "since", label: "Since", wide: true, sort: (p) => p.since, text: (p) => time(p.since, true) },
        { id: "streams", label: "Streams", num: true, sort: (p) => p.streams, text: (p) => count(p.streams) },
        { id: "tps", label: "TPS now", num: true, sort: (p) => p.tokens_per_second, text: (p) => rate(p.tokens_per_second) },
        { id: "address", label: "Address", wide: true, text: (p) => p.address },
        { id: "version", label: "Version", wide: true, text: (p) => p.version, why: () => "the pod has not been reached yet" },
        { id: "error", label: "Why", text: (p) => p.error ?? "" },
      ],
    });
  }

  async load() {
    try {
      this.update(await get("pods"));
    } catch (error) {
      this.problem.textContent = `Could not load: ${error.message}`;
    }
  }

  update({ store, pods, objectives, objectives_error: failed, left_out: left }) {
    this.rows = pods;
    this.problem.textContent = left > 0 ? `${plural(left, "more pod")} not followed, since there are too many.` : "";
    text(this.store, `Finished calls are from ${store.address}: ${storeSays(store)}; ${plural(store.calls, "call")} so far.`);
    text(this.objectives, `${objectivesSay(objectives)}${failed ? ` Objectives cannot be queried: ${failed}` : ""}`);
    this.table.update(pods);
  }
}

/** The source of objectives. */
export const objectivesSay = (source) =>
  ({
    prometheus: "Objectives cover all pods together, computed by Prometheus.",
    pods: "Objectives are each pod's own. Set --prometheus for objectives over all pods.",
    none: "No objectives are known. Set --prometheus or --pods.",
  })[source];

const storeSays = ({ state, error, read_at: at }) => {
  if (state === "away") return `it does not respond (${error})${at ? `, and the data is from ${time(at, true)}` : ""}`;
  return state === "reading" ? "it is being read" : "up to date";
};

/** What the answer of a fleet lacks because pods did not answer; empty if nothing is missing. `pods` is `null` for a single process. */
export function missingPods(pods) {
  if (!pods || pods.answered === pods.asked) return "";
  return `${pods.asked - pods.answered} of ${plural(pods.asked, "pod")} did not answer, so their figures are missing. ${pods.errors[0] ?? ""}`;
}

/** The problems of a fleet, as `[key, kind, sentence]`. */
export function fleetFindings({ store, pods, objectives_error: failed }) {
  const found = [];
  if (store.state === "away") found.push(["store", "bad", `The store of finished calls is unavailable: ${storeSays(store)}`]);
  else if (store.state === "reading") found.push(["store", "warn", `The store of finished calls is being read: ${plural(store.calls, "call")} so far`]);
  const gone = pods.filter(({ state }) => state === "unreachable");
  if (gone.length > 0) {
    const names = gone.slice(0, NAMED).map(podName).join(", ");
    const more = gone.length > NAMED ? ` and ${count(gone.length - NAMED)} more` : "";
    found.push([`pods ${names}${more}`, "bad", `${plural(gone.length, "pod")} cannot be reached: ${names}${more}`]);
  }
  if (failed) found.push(["objectives", "warn", `Objectives cannot be queried: ${failed}`]);
  return found;
}
