// Wires the parts together: what is asked when, and which view is shown.
import { get, keepToken, whenRefused } from "./api.js";
import { Calls } from "./calls.js";
import { Capacity } from "./capacity.js";
import { Compare } from "./compare.js";
import { connect } from "./connect.js";
import { Cost } from "./cost.js";
import { byId, h, text } from "./dom.js";
import { Experiments } from "./experiments.js";
import { count, seconds, time } from "./format.js";
import { Health } from "./health.js";
import { Live } from "./live.js";
import { Objectives } from "./objectives.js";
import { filters, keptFor, offer, startFilters, windowSeconds } from "./filters.js";
import { Session } from "./session.js";
import { Sessions } from "./sessions.js";
import { Speeds } from "./speeds.js";
import { Streams } from "./streams.js";
import { Tiles } from "./tiles.js";

const FRESH_FOR = 5000; // milliseconds between two looks at what happened
const SEEN_ANYWAY = 30_000;
const REST_AFTER = 30_000;

const tiles = new Tiles(byId("tiles"));
const health = new Health(byId("health"));
const speeds = new Speeds(byId("tps"), byId("ttft"), byId("output"));
const streams = new Streams(byId("streams"));
const objectives = new Objectives(byId("slos"));
const compare = new Compare(byId("models"), () => refresh());
const capacity = new Capacity(byId("capacity"));
const cost = new Cost(byId("cost"), () => refresh());
const calls = new Calls(byId("calls"));
const sessions = new Sessions(byId("sessions"), filters);
const session = new Session(byId("session"));
const experiments = new Experiments(byId("view-experiments"));
const live = new Live(take, link);

let view = "now";
let dirty = true;
let last = 0;
let seen = false; // whether there ever was a call

/** An event, or what polling found in its place. */
function take(event, data) {
  if (event === "streams") {
    if (data.streams.length > 0) hasCalls();
    health.know({ streams: data.streams });
    const { model, workload } = filters();
    if (model || workload) chosenStreams(model, workload);
    else showStreams(data);
  } else if (event === "slos") {
    tiles.slos(data.slos);
    objectives.update(data.slos);
    health.know({ slos: data.slos });
  } else if (event === "call") {
    hasCalls();
    calls.add(data.call ?? data);
    dirty = true;
  } else if (event === "calls") {
    if (data.calls[0]?.id !== calls.calls[0]?.id) dirty = true;
    if (data.calls.length > 0) hasCalls();
    calls.replace(data.calls);
  } else if (event === "lost") {
    dirty = true;
  }
}

function showStreams({ streams: shown, total, tokens_per_second: output }) {
  tiles.streams(shown, total, output);
  streams.update(shown, total);
}

let lastSeen = 0;
let asking = false;
/** Events are of all streams: of some of them the proxy is asked. */
async function chosenStreams(model, workload) {
  if (asking) return;
  asking = true;
  try {
    const chosen = await get("streams", { model, workload, limit: 100 });
    const now = filters();
    if (now.model === model && now.workload === workload) showStreams(chosen);
  } catch (error) {
    console.debug("streams:", error.message);
  } finally {
    asking = false;
  }
}

function link(state, message) {
  const words = { live: "Live", polling: "Every 2 s", lost: "Not reachable" };
  const element = byId("link-state");
  element.dataset.state = state;
  element.title = message ?? "";
  text(element, words[state]);
  // What was known before the proxy went is not what is: it is shown pale, with its time.
  const main = byId("main");
  if (state !== "lost") lastSeen = Date.now();
  main.classList.toggle("stale", state === "lost");
  text(byId("stale"), state === "lost" && lastSeen > 0 ? `Everything below is as of ${time(lastSeen, true)}` : "");
  health.know({ link: state === "lost" ? `The proxy is not reachable: ${message}` : null });
}

function hasCalls() {
  if (seen) return;
  seen = true;
  showEmpty();
}

function showEmpty() {
  byId("empty").hidden = seen;
  byId("panels").hidden = !seen;
}

let round = 0; // what an older one answers is not shown any more

/** Asks for everything the view shows. */
async function refresh() {
  round += 1;
  last = Date.now();
  dirty = false;
  if (view === "sessions") return sessions.load();
  if (view === "session") return session.open(session.id, true);
  if (view === "experiments") return experiments.load();
  if (view === "now") await Promise.allSettled([showWhole(), showSpeeds(), ...[...new Set(["models", "workloads", compare.kind])].map(showGroups), showCapacity()]);
}

function showSpeeds() {
  const ours = round;
  return speeds.load(filters(), windowSeconds(), () => ours === round);
}

async function showGroups(kind) {
  const ours = round;
  try {
    const named = kind === "models" || kind === "workloads";
    const answer = await get(named ? kind : "groups", { ...filters(), ...(named ? {} : { by: kind }), limit: 1000 });
    if (ours !== round) return;
    const rows = named ? answer[kind] : answer.groups;
    told(answer.store, answer.since);
    compare.update(kind, rows);
    if (!named) return;
    offer(kind, rows.map(({ name }) => name));
    cost.update(kind, rows);
  } catch (error) {
    compare.fail(error.message);
  }
}

/** Everything in one row: percentiles of parts do not add up. */
async function showWhole() {
  const ours = round;
  const { groups } = await get("groups", filters());
  if (ours !== round) return;
  const whole = groups[0] ?? null;
  tiles.whole(whole);
  health.know({ sums: whole ?? { calls: 0, errors: 0 } });
  if (whole) hasCalls();
}

async function showCapacity() {
  const ours = round;
  try {
    const { upstreams } = await get("capacity", filters());
    if (ours === round) capacity.update(upstreams, Boolean(filters().model || filters().workload));
  } catch (error) {
    capacity.fail(error.message);
  }
}

function told(store, since) {
  const kept = about?.measure.recent_calls;
  const of = since ? ` of the last ${seconds((Date.now() - Date.parse(since)) / 1000)}` : "";
  text(byId("store"), store === "memory" ? `At most the last ${count(kept) ?? ""} calls${of}, in memory; a ledger remembers more` : "");
}

let about = null;
async function learn() {
  about = await get("about");
  text(byId("version"), `tokengauge ${about.version}`);
  calls.measure = about.measure;
  streams.threshold = about.measure.stall_threshold;
  connect(byId("connect"), about);
  connect(byId("empty-body"), about);
  health.know({ about });
  // A ledger remembers more than it has seen so far.
  const { store, since } = await get("groups", {});
  keptFor(store !== "memory" ? Infinity : since ? (Date.now() - Date.parse(since)) / 1000 : 0);
}

/** `#/`, `#/sessions`, `#/sessions/<id>`, `#/experiments`, `#/connect`. */
function route() {
  const [, name, id] = location.hash.split("/");
  view = id ? "session" : ["sessions", "experiments", "connect"].includes(name) ? name : "now";
  for (const element of document.querySelectorAll(".view")) element.hidden = element.id !== `view-${view}`;
  for (const anchor of document.querySelectorAll("[data-view]")) {
    const here = anchor.dataset.view === (view === "session" ? "sessions" : view);
    if (here) anchor.setAttribute("aria-current", view === "session" ? "true" : "page");
    else anchor.removeAttribute("aria-current");
  }
  byId("filters").hidden = ["connect", "session", "experiments"].includes(view);
  const titles = { now: "Now", sessions: "Sessions", session: "A session", experiments: "Experiments", connect: "Connect" };
  text(byId("title"), titles[view]);
  document.title = view === "now" ? "tokengauge" : `${titles[view]} · tokengauge`;
  if (view === "session") session.open(decoded(id));
  else refresh();
}

/** What a hand has typed may be no encoding of anything. */
function decoded(id) {
  try {
    return decodeURIComponent(id);
  } catch {
    return id;
  }
}

function askForToken(problem) {
  const dialog = byId("token");
  text(byId("token-problem"), problem);
  if (!dialog.open) dialog.showModal();
}

byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  keepToken(byId("token-input").value.trim());
  byId("token-input").value = "";
  byId("token").close();
  begin();
});
// Without a token there is nothing to see behind it.
byId("token").addEventListener("cancel", (event) => event.preventDefault());
whenRefused(askForToken);

startFilters(byId("filters"), () => {
  tiles.forget();
  calls.matches = matching(filters());
  calls.show();
  sessions.cursors = [null];
  refresh();
});

const matching = ({ model, workload }) => (call) => (!model || (call.model ?? call.model_requested) === model) && (!workload || call.workload === workload);

let begun = 0;
async function begin() {
  const ours = ++begun;
  try {
    await learn();
    const first = await get("calls", { limit: 100 });
    take("calls", first);
    showEmpty();
    take("slos", await get("slos"));
    take("streams", await get("streams", { limit: 1000 }));
    route();
  } catch (error) {
    if (error.status !== 401) {
      link("lost", error.message);
      setTimeout(() => ours === begun && begin(), 3000);
    }
    return;
  }
  if (live.running) live.again();
  else live.start();
}

setInterval(() => {
  if (document.hidden || !live.running) return;
  const age = Date.now() - last;
  if ((dirty && age >= FRESH_FOR) || age >= SEEN_ANYWAY) refresh();
}, 1000);
setInterval(() => !document.hidden && live.running && learn().catch(() => {}), SEEN_ANYWAY);
addEventListener("hashchange", () => {
  route();
  byId("main").focus({ preventScroll: true });
  scrollTo(0, 0);
});
let unseen;
document.addEventListener("visibilitychange", () => {
  clearTimeout(unseen);
  if (!live.running) return;
  if (document.hidden) {
    unseen = setTimeout(() => live.rest(), REST_AFTER);
    return;
  }
  if (live.resting) live.again();
  refresh();
});

document.body.append(h("p", { class: "vh", role: "status", id: "health-said" }));
begin();
