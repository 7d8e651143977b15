// The page of a fleet of ten proxies, one of which was killed: `node fleet.mjs SETTINGS.json RESULTS.json`.
import assert from "node:assert/strict";
import fs from "node:fs";
import { PATIENCE, inaccessible, launch, open } from "./browser.mjs";

const [, , settings, results] = process.argv;
const world = JSON.parse(fs.readFileSync(settings, "utf8"));
const browser = await launch();

const until = async (what, holds, seconds = 60) => {
  const end = Date.now() + seconds * 1000 * PATIENCE;
  while (!(await holds())) {
    assert.ok(Date.now() < end, `not within ${seconds * PATIENCE} s: ${what}`);
    await new Promise((wake) => setTimeout(wake, 100));
  }
};
const texts = (page, selector) => page.locator(selector).allTextContents();
const shot = (page, name) => page.screenshot({ path: `${world.shots}/${name}.png`, fullPage: true });

async function streams() {
  const { page, wrong } = await open(browser, world.admin);
  await page.locator('#link-state[data-state="live"]').waitFor();
  const shown = async () => (await texts(page, "#streams tbody tr")).join("\n");
  await until("streams of all pods that live", async () => {
    const text = await shown();
    return world.alive.every((name) => text.includes(`agents/${name}`));
  });
  assert.ok(!(await shown()).includes(world.killed), "none of the killed pod");
  const nav = page.locator("header nav");
  assert.equal(await nav.getByRole("link", { name: "Pods" }).isVisible(), true);
  for (const view of ["Upstreams", "Alerts"]) assert.equal(await nav.getByRole("link", { name: view }).isVisible(), true, view);
  assert.equal(await nav.getByRole("link", { name: "Connect" }).isVisible(), false, "of one process");
  assert.equal(await page.getByRole("region", { name: "Capacity", exact: true }).isVisible(), true);
  await until("the killed pod is named", async () => (await texts(page, "#health li")).some((line) => line.includes("cannot be reached") && line.includes(world.killed)));
  assert.ok((await page.locator("#slos").textContent()).includes("each pod's own"), "whose objectives these are");
  await until("finished calls with their pods", async () => (await texts(page, "#last-calls tbody tr")).some((row) => row.includes("agents/agent-")));
  await shot(page, "fleet-now");
  assert.deepEqual(await inaccessible(page), []);
  assert.deepEqual(wrong, []);
}

async function pods() {
  const { page, wrong } = await open(browser, world.admin, { path: "pods" });
  await until("all pods", async () => (await page.locator("#pods tbody tr").count()) === world.alive.length + 1);
  const [first] = await texts(page, "#pods tbody tr");
  assert.ok(first.includes(world.killed) && first.includes("not reachable"), first);
  await until("the store is up to date", async () => (await page.locator("#pods").textContent()).includes("up to date"));
  await shot(page, "fleet-pods");
  assert.deepEqual(await inaccessible(page), []);
  assert.deepEqual(wrong, []);
}

async function upstreams() {
  const { page, wrong } = await open(browser, world.admin, { path: "upstreams" });
  await until("the upstream of all pods", async () => (await page.locator("#upstreams tbody tr").count()) === 1);
  const said = await page.locator("#upstreams").textContent();
  assert.ok(said.includes(`1 of ${world.alive.length + 1} pods did not answer`) && said.includes(world.killed), said);
  await shot(page, "fleet-upstreams");
  assert.deepEqual(await inaccessible(page), []);
  await page.getByRole("link", { name: "Alerts" }).click();
  await until("alerts of the pods", async () => (await page.locator("#alerts").textContent()).includes("of the pods"));
  assert.deepEqual(wrong, []);
}

async function session() {
  const { page, wrong } = await open(browser, world.admin, { path: `sessions/${world.session.id}` });
  const rows = page.locator("table.fall tbody tr[data-call]");
  await until("the calls of both pods", async () => (await rows.count()) === world.session.pods.length);
  const names = await texts(page, "table.fall tbody tr[data-call] th");
  world.session.pods.forEach((name, place) => assert.ok(names[place].includes(name), `${names} in the order of ${world.session.pods}`));
  await shot(page, "fleet-session");
  assert.deepEqual(wrong, []);
}

async function filters() {
  const [pod] = world.alive;
  const { page, wrong } = await open(browser, world.admin, { path: "calls" });
  await until("calls of several pods", async () => new Set((await texts(page, "#calls tbody tr")).map((row) => /agent-\d+/.exec(row)?.[0])).size > 1);
  await page.locator("#more summary").click();
  await until("pods to choose from", async () => (await page.locator(`#filters select[name="pod"] option[value="${pod}"]`).count()) === 1);
  await page.locator('#filters select[name="pod"]').selectOption(pod);
  await until("only calls of the pod", async () => {
    const all = await texts(page, "#calls tbody tr");
    return all.length > 0 && all.every((row) => row.includes(`agents/${pod}`));
  });
  assert.equal(new URL(page.url()).searchParams.get("pod"), pod);
  assert.deepEqual(wrong, []);
}

/** The money of each team, the calls of one of them, and its streams. */
async function teams() {
  const { page, wrong } = await open(browser, world.admin, { path: "?cost=team" });
  await page.locator('#link-state[data-state="live"]').waitFor();
  await until("a share of each team", async () => {
    const shares = await texts(page, "#cost li");
    return shares.length === 2 && ["search", "ads"].every((team) => shares.some((share) => share.includes(team)));
  });
  await page.locator("#cost li a", { hasText: "ads" }).click();
  assert.equal(new URL(page.url()).searchParams.get("team"), "ads");
  const even = (rows) => rows.length > 0 && rows.every((row) => Number(/agent-(\d+)/.exec(row)?.[1]) % 2 === 0);
  await until("only calls of the team", async () => even(await texts(page, "#last-calls tbody tr")));
  await until("only streams of the team", async () => even(await texts(page, "#streams tbody tr")));
  await shot(page, "fleet-team");
  assert.deepEqual(await inaccessible(page), []);
  assert.deepEqual(wrong, []);
}

const told = {};
for (const [name, play] of Object.entries({ streams, pods, upstreams, session, filters, teams })) {
  try {
    await play();
    told[name] = null;
  } catch (error) {
    told[name] = error.stack;
  }
  for (const context of browser.contexts()) await context.close();
}
await browser.close();
fs.writeFileSync(results, JSON.stringify(told));
