// Measures how long the page takes to show its first figures on an existing ledger: `node big_ledger.mjs TOKENGAUGE
// LEDGER`. Prints milliseconds and the slowest API answer. The ledger is opened as a proxy opens it, and no call is
// deleted.
import { spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { launch, open } from "./browser.mjs";

const GOAL = 1000; // milliseconds
const HANGS = 60_000;
const WINDOWS = ["6h", "1d", "7d", "30d"];
/** The elements of each view that exist once it has figures. */
const FIGURES = {
  "": "#models tbody tr, #last-calls tbody tr",
  sessions: "#sessions tbody tr",
  calls: "#calls tbody tr",
  costs: "#costs tbody tr",
  upstreams: "#upstreams tbody tr",
};
/** Other ways to look at the longest window. */
const QUERIES = [
  ["", "by=agent"], ["", "by=user"], ["", "by=tool"], ["", "speeds=heat"], ["", "against=before"], ["", "model=gpt-5.1"], ["", "outcome=failed"],
  ["costs", "by=user"], ["costs", "by=agent"], ["costs", "by=tool"],
  ["sessions", "sort=-cost"], ["sessions", "sort=-duration"], ["sessions", "q=codex"], ["calls", "outcome=failed"], ["calls", "user=00000000000000000000000000000011"],
];

const [, , tokengauge, ledger] = process.argv;
const folder = fs.mkdtempSync(path.join(os.tmpdir(), "tokengauge-"));
const file = path.join(folder, "proxy.toml");
fs.writeFileSync(file, `listen = "127.0.0.1:0"
[admin]
listen = "127.0.0.1:0"
[ledger]
path = ${JSON.stringify(path.resolve(ledger))}
retention_age = "3650d"
retention_bytes = "100GB"
[[upstream]]
name = "none"
url = "http://127.0.0.1:9"
[[route]]
upstream = "none"
`);

/** Starts the proxy; its admin address. */
async function start() {
  const proxy = spawn(tokengauge, ["run", "--config", file], { stdio: ["ignore", "ignore", "pipe"] });
  for await (const line of createInterface({ input: proxy.stderr })) {
    const admin = line.match(/admin on (127\.0\.0\.1:\d+)/)?.[1];
    if (admin) {
      proxy.stderr.resume();
      return [proxy, `http://${admin}`];
    }
  }
  throw new Error("the proxy ended before it was ready");
}

/** When a view first had figures, and its slowest answer until all were there. */
async function measure(browser, admin, at, figures) {
  const prepare = (page) => page.addInitScript((selector) => {
    new MutationObserver((_, observer) => {
      const found = document.querySelector(selector);
      if (!/\d/.test(found?.textContent ?? "")) return;
      globalThis.firstFigures = performance.now();
      observer.disconnect();
    }).observe(document, { childList: true, subtree: true, characterData: true });
  }, figures);
  const { page, context, wrong } = await open(browser, admin, { path: at, prepare });
  const shown = () => globalThis.firstFigures !== undefined || /Could not load/.test(document.body.textContent);
  await page.waitForFunction(shown, null, { timeout: HANGS });
  const asked = () => page.evaluate(() => performance.getEntriesByType("resource").filter(({ name }) => name.includes("/api/")).map(({ name, duration }) => [name.split("/api/v1/")[1], duration]));
  const first = await page.evaluate(() => globalThis.firstFigures ?? Infinity);
  await page.waitForTimeout(1500);
  const [slowest] = (await asked()).sort(([, one], [, other]) => other - one);
  await context.close();
  wrong.forEach((text) => console.error(text));
  return { first, slowest };
}

const [proxy, admin] = await start();
const browser = await launch();
let missed = 0;
try {
  const [longest] = (await (await fetch(`${admin}/api/v1/sessions?sort=calls&order=desc&limit=1`)).json()).sessions;
  const [call] = (await (await fetch(`${admin}/api/v1/calls?limit=1`)).json()).calls;
  const views = Object.keys(FIGURES).flatMap((view) => WINDOWS.map((since) => [view, `${view}?since=${since}`]));
  views.push(...QUERIES.map(([view, query]) => [view, `${view}?since=30d&${query}`]));
  const all = views.map(([view, at]) => [at, FIGURES[view]]);
  all.push([`sessions/${longest.id}`, "#session tbody tr"], [`calls/${call.id}`, "#call .facts"]);
  await measure(browser, admin, "?since=30d", FIGURES[""]); // not counted, because the browser is cold
  console.log("| view | first figures, ms | slowest answer, ms |\n|---|---|---|");
  for (const [at, figures] of all) {
    const { first, slowest } = await measure(browser, admin, at, figures);
    if (first > GOAL) missed += 1;
    const figure = first === Infinity ? "refused, the time is too long" : first.toFixed(0);
    console.log(`| /${at} | ${figure}${first > GOAL ? " (!)" : ""} | ${slowest[1].toFixed(0)} ${slowest[0]} |`);
  }
} finally {
  await browser.close();
  proxy.kill("SIGTERM");
  await once(proxy, "exit");
  fs.rmSync(folder, { recursive: true });
}
if (missed > 0) {
  console.log(`missed: ${missed} views take longer than a second`);
  process.exit(1);
}
