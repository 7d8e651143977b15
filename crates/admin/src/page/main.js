// Connects the parts of the page: what is loaded when, and which view is shown.
import { Alerts } from "./alerts.js";
import { get, keepToken, whenRefused } from "./api.js";
import { address, other, startAddress } from "./address.js";
import { Call } from "./call.js";
import { AllCalls, Calls, ended as keepFresh, keepMeasure } from "./calls.js";
import { Capacity } from "./capacity.js";
import { Compare } from "./compare.js";
import { connect } from "./connect.js";
import { Cost } from "./cost.js";
import { Costs } from "./costs.js";
import { Coverage } from "./coverage.js";
import { byId, h, text } from "./dom.js";
import { Experiments } from "./experiments.js";
import { figuresFirst, filters, keptFor, names, offer, offerNames, renameUsers, showFilters, startFilters } from "./filters.js";
import { plural, seconds, time } from "./format.js";
import { Health } from "./health.js";
import { startKeys } from "./keys.js";
import { Live } from "./live.js";
import { namesForm } from "./names.js";
import { Objectives } from "./objectives.js";
import { Pods } from "./pods.js";
import { Runaways } from "./runaways.js";
import { capsuleButton } from "./save.js";
import { Session } from "./session.js";
import { Sessions } from "./sessions.js";
import { Speeds } from "./speeds.js";
import { Streams } from "./streams.js";
import { Tiles } from "./tiles.js";
import { Upstreams } from "./upstreams.js";
import { inMemory } from "./words.js";

const FRESH_FOR = 5000; // milliseconds between two updates of a view
const SEEN_ANYWAY = 30_000;
const REST_AFTER = 30_000;

const tiles = new Tiles(byId("tiles"));
const health = new Health(byId("health"));
const coverage = new Coverage(byId("coverage"));
const speeds = new Speeds(byId("tps"), byId("ttft"), byId("output"));
const streams = new Streams(byId("streams"));
const objectives = new Objectives(byId("slos"));
const compare = new Compare(byId("models"));
const capacity = new Capacity(byId("capacity"));
const cost = new Cost(byId("cost"));
const calls = new Calls(byId("last-calls"));
const allCalls = new AllCalls(byId("calls"));
const call = new Call(byId("call"));
const runaways = new Runaways(byId("runaways"));
const sessions = new Sessions(byId("sessions"), filters);
const session = new Session(byId("session"));
const costs = new Costs(byId("costs"));
const upstreams = new Upstreams(byId("upstreams"));
const alertHistory = new Alerts(byId("alerts"));
const experiments = new Experiments(byId("view-experiments"));
byId("capsule").append(capsuleButton(whatIsShown, "Export report of this period"));
const pods = new Pods(byId("pods"));
const live = new Live(take, link);

/** The title of each view, how it follows a changed address (`follow`), and how it updates after new events (`again`). */
const VIEWS = {
  now: { title: "Overview", follow: () => showNow(), again: () => showNow() },
  sessions: { title: "Sessions", follow: () => (showRunaways(), sessions.restart()), again: () => (showRunaways(), sessions.load()) },
  session: { title: "Session", in: "sessions", follow: () => session.open(address.id, about?.measure), again: () => session.open(address.id, about?.measure, true) },
  calls: { title: "Calls", follow: () => allCalls.load(), again: () => allCalls.load(true) },
  call: { title: "Call", in: "calls", follow: () => call.open(address.id, about?.measure), again: () => call.failed && call.open(address.id, about?.measure) },
  costs: { title: "Costs", follow: () => costs.load(thisRound()), again: () => costs.load(thisRound()) },
  upstreams: { title: "Upstreams", follow: () => showUpstreams(), again: () => upstreams.load(thisRound()) },
  experiments: { title: "Experiments", follow: () => experiments.load(), again: () => experiments.load() },
  alerts: { title: "Alerts", follow: () => alertHistory.load(), again: () => alertHistory.load() },
  connect: { title: "Connect", follow: () => {}, again: () => {} },
  pods: { title: "Pods", follow: () => pods.load(), again: () => pods.load() },
};
/** The views with filters and a time. */
const FILTERED = ["now", "sessions", "calls", "costs", "upstreams"];

let about = null;
let dirty = true;
let last = 0;
let seen = false; // whether there has been a call
let newest = null; // the call that ended last

/** Handles an event, or the result of a poll. */
function take(event, data) {
  if (event === "streams") {
    if (data.streams.length > 0) hasCalls();
    health.know({ streams: data.streams });
    if (Object.keys(names()).length > 0) chosenStreams();
    else showStreams(data);
  } else if (event === "slos") {
    tiles.slos(data.slos);
    objectives.update(data.slos, data.source, data.total);
    health.know({ slos: data.slos });
    alerts(data.slos);
    allCalls.know(data.slos);
    offer("slo", data.slos.map(({ name }) => name));
  } else if (event === "call") {
    ended([data.call ?? data]);
  } else if (event === "calls") {
    ended(data.calls.toReversed());
  } else if (event === "lost") {
    dirty = true;
  }
}

/** Handles calls that have ended, in this order. Some may be known already. */
function ended(all) {
  if (all.length === 0) return;
  hasCalls();
  if (all.at(-1).id !== newest) dirty = true;
  newest = all.at(-1).id;
  const list = { now: calls, calls: allCalls }[address.view];
  for (const one of all) {
    keepFresh(one);
    list?.add(one);
  }
}

let firing = "";
/** Shows firing alerts in the title of the tab. */
function alerts(slos) {
  const all = slos.filter((slo) => slo.alerts.some((alert) => alert.firing));
  const pages = all.filter((slo) => slo.alerts.some((alert) => alert.firing && alert.severity === "page"));
  const [first] = pages.length > 0 ? pages : all;
  firing = first ? `${pages.length > 0 ? "‼" : "!"} ${first.name}${all.length > 1 ? ` +${all.length - 1}` : ""} · ` : "";
  showTitle();
}

function showTitle() {
  const { title } = VIEWS[address.view];
  document.title = `${firing}${address.view === "now" ? "" : `${title} · `}tokengauge`;
}

function showStreams({ streams: shown, total, tokens_per_second: output }) {
  tiles.streams(shown, total, output);
  streams.update(shown, total);
}

let lastSeen = 0;
let asking = false;
/** Loads the filtered streams, since events always contain all streams. */
async function chosenStreams() {
  if (asking) return;
  asking = true;
  try {
    const wanted = names();
    const { outcome, user, tool, experiment, cost_unavailable, tps_unavailable, slo: _, ...known } = wanted;
    // These values are known only after a call has ended.
    const unknown = { user, tool, experiment, outcome, cost_unavailable, tps_unavailable };
    const why = Object.keys(unknown).filter((name) => unknown[name]);
    const chosen = await get("streams", { ...known, limit: 100 });
    if (JSON.stringify(names()) !== JSON.stringify(wanted)) return;
    showStreams(chosen);
    if (why.length > 0) text(streams.note, `Not filtered by ${why.join(", ")}, which ${why.length === 1 ? "is" : "are"} known only when a call has ended.`);
  } catch (error) {
    console.debug("streams:", error.message);
  } finally {
    asking = false;
  }
}

function link(state, message) {
  const words = { live: "Live", polling: "Polling every 2 s", lost: "Not reachable" };
  const element = byId("link-state");
  element.dataset.state = state;
  element.title = message ?? "";
  text(element, words[state]);
  // Figures from before the connection was lost are shown pale, with their time.
  const main = byId("main");
  if (state !== "lost") lastSeen = Date.now();
  main.classList.toggle("stale", state === "lost");
  text(byId("stale"), state === "lost" && lastSeen > 0 ? `The data below is from ${time(lastSeen, true)}` : "");
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

let round = 0; // results of older rounds are dropped

/** The time of the view, for the report of an incident. */
function whatIsShown() {
  const { since, until } = filters();
  return { since, until };
}

/** Reloads everything in the view that may have changed. */
async function refresh() {
  began();
  await VIEWS[address.view].again();
}

function began() {
  round += 1;
  last = Date.now();
  dirty = false;
}

/** A test whether no newer round has started. */
function thisRound() {
  const ours = round;
  return () => ours === round;
}

function showUpstreams() {
  upstreams.table.follow();
  return upstreams.load(thisRound());
}

function showNow() {
  const current = thisRound();
  // The proxy answers one or two requests at a time, so the curves, which take longest, come last.
  return Promise.allSettled([showWhole(current), calls.load(current), showGroups(current), showCapacity(current), showRunaways(), coverage.load(current), speeds.load(filters(), current)]);
}

/** Loads the comparison, the cost, and the options of filters. */
async function showGroups(current) {
  const { by = "model", cost: paid = "model" } = address.params;
  const compared = compare.load(current);
  const others = [...new Set(["model", "workload", paid])].filter((one) => one !== by);
  const asked = others.map(async (one) => [one, (await get("groups", { ...filters(), by: one, limit: 1000 })).groups]);
  const rows = Object.fromEntries(await Promise.all(asked));
  const answer = await compared;
  if (!answer || !current()) return;
  rows[by] = answer.groups;
  for (const one of ["model", "workload"]) offer(one, rows[one].map(({ name }) => name));
  cost.update(rows[paid]);
}

/** Loads the figures of all calls in one row, since percentiles of parts cannot be summed. */
async function showWhole(current) {
  const { groups } = await get("groups", filters());
  if (!current()) return;
  const whole = groups[0] ?? null;
  tiles.whole(whole);
  health.know({ sums: whole ?? { calls: 0, errors: 0 } });
  if (whole) hasCalls();
}

async function showRunaways() {
  if (about?.fleet) return;
  const found = await runaways.load();
  if (found) health.know({ runaways: found });
}

async function showCapacity(current) {
  try {
    const { upstreams } = await get("capacity", filters());
    if (current()) capacity.update(upstreams, Object.keys(names()).some((name) => name !== "upstream"));
  } catch (error) {
    capacity.fail(error.message);
  }
}

function told(store, since) {
  const of = since ? ` of the last ${seconds((Date.now() - Date.parse(since)) / 1000)}` : "";
  text(byId("store"), store === "memory" ? inMemory(about.measure, of) : "");
}

async function learn() {
  about = await get("about");
  document.body.toggleAttribute("data-fleet", Boolean(about.fleet));
  if (about.fleet) {
    text(byId("empty-title"), "No calls yet");
    await learnFleet();
  }
  text(byId("version"), `tokengauge ${about.version}`);
  keepMeasure(about.measure);
  streams.threshold = about.measure.stall_threshold;
  offer("route", about.routes.map(({ name }) => name));
  offer("upstream", about.routes.map(({ upstream }) => upstream));
  connect(byId("connect"), about);
  connect(byId("empty-body"), about);
  health.know({ about });
  // A ledger contains more than the process has seen.
  const { store, since } = await get("groups", {});
  told(store, since);
  keptFor(store !== "memory" ? Infinity : since ? (Date.now() - Date.parse(since)) / 1000 : 0);
}

async function learnFleet() {
  const fleet = await get("pods");
  health.know({ fleet });
  pods.update(fleet);
  for (const name of ["cluster", "namespace"]) offer(name, fleet.pods.map((pod) => pod[name]));
  offer("pod", fleet.pods.map(({ name }) => name));
}

/** Shows the view of the address and hides the others. */
function showView() {
  const { view } = address;
  const { title, in: within } = VIEWS[view];
  for (const element of document.querySelectorAll(".view")) element.hidden = element.id !== `view-${view}`;
  for (const anchor of document.querySelectorAll("[data-view]")) {
    const name = anchor.dataset.view;
    anchor.href = other(name);
    if (name === (within ?? view)) anchor.setAttribute("aria-current", within ? "true" : "page");
    else anchor.removeAttribute("aria-current");
  }
  byId("filters").hidden = !FILTERED.includes(view);
  text(byId("title"), title);
  showTitle();
  if (FILTERED.includes(view)) showFilters();
}

/** Scrolls to the fragment of the address. */
function reveal() {
  byId(location.hash.slice(1))?.scrollIntoView();
}

function route() {
  showView();
  const { view } = address;
  if (view === "now") {
    tiles.forget();
    compare.follow();
    streams.table.follow();
  }
  began();
  const shown = VIEWS[view].follow();
  figuresFirst(shown);
  if (FILTERED.includes(view) && view !== "now") offerNames(["model", "workload"]);
  if (location.hash) {
    reveal();
    shown?.then(reveal);
  }
  const { problems } = address;
  text(byId("address-problem"), problems.length > 0 ? `The address of this page has ${plural(problems.length, "error")}, and these parts are ignored: ${problems.join("; ")}.` : "");
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
// The page shows nothing without a token, so the dialog stays open.
byId("token").addEventListener("cancel", (event) => event.preventDefault());
whenRefused(askForToken);

startFilters(byId("filters"));
byId("names").append(namesForm());
// Draws everything again with the changed names.
document.addEventListener("names", () => (renameUsers(), route()));
startKeys();
startAddress(({ another, back }) => {
  route();
  if (!another) return;
  byId("main").focus({ preventScroll: true });
  if (!back && !location.hash) scrollTo(0, 0);
});

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
setInterval(() => !document.hidden && live.running && about?.fleet && learnFleet().catch(() => {}), FRESH_FOR);
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

// Makes relative links absolute, since the path differs between views.
for (const element of document.querySelectorAll("a[href]:not([href^='#']), link[rel=icon]")) element.setAttribute("href", element.href);
for (const image of document.querySelectorAll("img[src]")) image.setAttribute("src", image.src);
showView();
document.body.append(h("p", { class: "vh", role: "status", id: "health-said" }));
begin();
