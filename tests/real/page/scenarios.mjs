// User scenarios of the live page. Each scenario throws if the page does not show the expected result.
import assert from "node:assert/strict";
import fs from "node:fs";
import { PATIENCE, call, inaccessible, open } from "./browser.mjs";

const figure = (page, tile) => page.locator(`#tile-${tile} .value`).textContent();
const cells = (page, table, column) => page.locator(`${table} tbody tr > :nth-child(${column})`).allTextContents();
/** The cells of a table below a column's name. */
const below = async (page, table, label) => cells(page, table, (await page.locator(`${table} thead th`).allTextContents()).findIndex((name) => name === label) + 1);
const state = (page, wanted) => page.locator(`#link-state[data-state="${wanted}"]`).waitFor();
const until = async (what, holds, seconds = 30) => {
  const end = Date.now() + seconds * 1000 * PATIENCE;
  while (!(await holds())) {
    assert.ok(Date.now() < end, `not within ${seconds * PATIENCE} s: ${what}`);
    await new Promise((wake) => setTimeout(wake, 50));
  }
};
/** What `act` makes the page ask for, as soon as it is like `pattern`. */
const asks = (page, pattern, act) => Promise.all([page.waitForRequest((request) => pattern.test(request.url())), act()]);
const choose = (page, filter, value) => page.locator(`#filters select[name="${filter}"]`).selectOption(value);
const api = async (world, path) => (await fetch(`${world.full.admin}/api/v1/${path}`)).json();
const clean = (wrong) => assert.deepEqual(wrong, []);

async function start(world) {
  const { page, wrong } = await open(world.browser, world.full.admin);
  await state(page, "live");
  for (const tile of ["tps", "ttft", "errors", "budget"]) await until(`a figure in ${tile}`, async () => /\d/.test(await figure(page, tile)));
  assert.equal(await page.locator("#empty").isVisible(), false);
  for (const title of ["Tokens per second (TPS) per call", "Time to first token (TTFT)", "Streams in flight", "Objectives", "Compare", "Capacity", "Cost", "Recent calls"]) {
    assert.equal(await page.getByRole("region", { name: title, exact: true }).first().isVisible(), true, title);
  }
  const bytes = await page.evaluate(() => [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")].filter(({ name }) => !name.includes("/api/")).reduce((sum, { encodedBodySize }) => sum + encodedBodySize, 0));
  assert.ok(bytes > 20_000 && bytes <= 200_000, `the page is ${bytes} bytes`);
  // A plot's figures are also available as a table.
  await page.locator("#tps summary").click();
  await until("rows of the plot", async () => (await page.locator("#tps details tbody tr").count()) > 0);
  const [whole] = (await api(world, "groups?since=15m")).groups;
  const speed = Number(await page.locator("#tile-tps .value").evaluate((value) => value.firstChild.textContent));
  assert.ok(Math.abs(speed - whole.tps.p50) <= whole.tps.p50 * 0.1, `${speed} for ${whole.tps.p50}`);
  const budgets = await page.locator("#slos .slo h3").allTextContents();
  const names = (await api(world, "slos")).slos.map(({ name }) => name);
  assert.equal(budgets.length, names.length);
  names.forEach((name, place) => assert.ok(budgets[place].startsWith(name)));
  clean(wrong);
}

async function liveUpdate(world) {
  const { page, wrong } = await open(world.browser, world.full.admin);
  await state(page, "live");
  const session = `live-${Date.now()}`;
  const going = call(world.full.proxy, { session, agent: "watcher/1", behave: "ttft=50ms,gap=20ms,tokens=500" });
  await page.locator("#streams tbody tr", { hasText: session }).waitFor();
  await until("output now", async () => Number(await page.locator("#tile-now .value").evaluate((value) => value.firstChild.textContent)) > 0);
  await going;
  await page.locator("#last-calls tbody tr", { hasText: session }).waitFor();
  await until("the stream is gone", async () => (await page.locator("#streams tbody tr", { hasText: session }).count()) === 0);
  clean(wrong);
}

async function polling(world) {
  const prepare = (page) => page.route("**/api/v1/events", (route) => route.abort());
  const { page, wrong } = await open(world.browser, world.full.admin, { prepare, expected: /ERR_FAILED/ });
  await state(page, "polling");
  const session = `polled-${Date.now()}`;
  await call(world.full.proxy, { session });
  await page.locator("#last-calls tbody tr", { hasText: session }).waitFor();
  // Polling stops only after events have arrived again.
  let answer;
  const answers = new Promise((resolve) => (answer = resolve));
  const held = [];
  await page.route("**/api/v1/slos", async (route) => {
    held.push(route.request());
    await answers;
    await route.continue();
  });
  await until("polling waits", () => held.length > 0);
  await page.unroute("**/api/v1/events");
  await state(page, "live");
  const answered = held.map((request) => page.waitForResponse(request.url()));
  answer();
  await Promise.all(answered);
  const later = `live-again-${Date.now()}`;
  await call(world.full.proxy, { session: later });
  await page.locator("#last-calls tbody tr", { hasText: later }).waitFor();
  await state(page, "live");
  const asked = [];
  page.on("request", (request) => asked.push(request.url()));
  await page.waitForTimeout(3000); // longer than polling waits
  assert.deepEqual(asked.filter((url) => url.endsWith("/api/v1/slos")), []);
  assert.equal(await page.locator("#link-state").getAttribute("data-state"), "live");
  clean(wrong);
}

async function filter(world) {
  const { page, wrong } = await open(world.browser, world.full.admin);
  await state(page, "live");
  await page.locator('#filters select[name="model"] option[value="claude-sonnet-4-5"]').waitFor({ state: "attached" });
  await asks(page, /\/groups\?.*model=claude-sonnet-4-5.*by=model/, () => choose(page, "model", "claude-sonnet-4-5"));
  await until("only one model", async () => (await cells(page, "#models", 1)).join() === "claude-sonnet-4-5");
  await until("only its calls", async () => {
    const models = await cells(page, "#last-calls", 2);
    return models.length > 0 && models.every((model) => model === "claude-sonnet-4-5");
  });
  // A window of another length uses another step.
  await asks(page, /timeseries\?.*since=6h.*step=300s/, () => page.getByText("6h", { exact: true }).click());
  await page.locator('[data-view="sessions"]').click();
  await choose(page, "model", "");
  await page.getByLabel("Session or agent contains").fill("waterfall");
  await until("sessions that contain it", async () => (await cells(page, "#sessions", 1)).join() === "waterfall");
  await page.getByLabel("Session or agent contains").fill("no-such-session");
  await page.getByText("No sessions match").waitFor();
  clean(wrong);
}

async function sort(world) {
  const { page, wrong } = await open(world.browser, world.full.admin, { path: "sessions" });
  const head = page.locator("#sessions th", { hasText: "Calls" });
  await head.getByRole("button").click();
  await until("most calls first", async () => (await cells(page, "#sessions", 1))[0] === "waterfall");
  assert.equal(await head.getAttribute("aria-sort"), "descending");
  const calls = (await cells(page, "#sessions", 5)).map(Number);
  assert.deepEqual(calls, calls.toSorted((one, other) => other - one));
  await head.getByRole("button").click();
  await until("fewest first", async () => (await cells(page, "#sessions", 5))[0] === "1");
  assert.equal(await head.getAttribute("aria-sort"), "ascending");
  await page.locator('[data-view="now"]').click();
  // The same speed in the provider's tokens.
  const reported = await page.locator("#models th", { hasText: "Reported TPS" }).getByRole("button").getAttribute("title");
  assert.match(reported, /provider's own tokens/);
  const rows = (await api(world, "models?since=15m")).models.filter((row) => row.tps_reported.p50 !== null);
  assert.ok(rows.length > 0, "models whose provider reports tokens");
  const heads = await page.locator("#models thead th").allTextContents();
  const figures = (await cells(page, "#models", heads.indexOf("Reported TPS") + 1)).map(Number).filter((figure) => figure > 0);
  assert.ok(figures.length > 0 && figures.length <= rows.length + 1, figures.join());
  await page.locator("#models th", { hasText: "TPS p50" }).getByRole("button").click();
  await until("the fastest model first", async () => {
    const speeds = (await cells(page, "#models", 4)).map(Number).filter(Number.isFinite);
    return speeds.length > 2 && speeds.every((speed, place) => place === 0 || speed <= speeds[place - 1]);
  });
  clean(wrong);
}

/** Lengths and hardware side by side, how many calls were judged, how often and how long. */
async function compare(world) {
  const { page, wrong } = await open(world.browser, world.full.admin);
  await state(page, "live");
  for (const [label, kind] of [["Agents", "agent"], ["Outcomes", "outcome"], ["Prompt length", "prompt_length"], ["Output length", "output_length"], ["Hardware and engine", "upstream_facts"]]) {
    await asks(page, new RegExp(`groups\\?.*by=${kind}`), () => page.getByLabel("Group by", { exact: true }).selectOption({ label }));
    const named = async () => (await api(world, `groups?since=15m&by=${kind}`)).groups.map(({ name }) => name ?? "–");
    await until(`rows by ${kind}`, async () => {
      const rows = (await cells(page, "#models", 1)).map((row) => row.replace(/^–.*/, "–"));
      const words = { complete: "complete", unreachable: "unreachable", client_cancelled: "client cancelled", http_error: "HTTP error" };
      const wanted = (await named()).map((name) => (kind === "outcome" ? words[name] ?? name : name));
      return rows.length > 0 && rows.toSorted().join() === wanted.toSorted().join();
    });
  }
  assert.ok((await cells(page, "#models", 1)).includes("hardware=simulated; engine=tokengauge demo"));
  const columns = await page.locator("#models thead th").allTextContents();
  const judged = await cells(page, "#models", columns.findIndex((head) => head.startsWith("Measured")) + 1);
  assert.match(judged[0], /^\d[\d.,KM]* of \d[\d.,KM]*$/);
  await until("requests a second", async () => /requests\/s/.test(await page.locator("#tile-errors .sub").textContent()));
  await page.locator('[data-view="sessions"]').click();
  await until("tasks", async () => /tasks?, .* a minute: duration p50/.test(await page.locator("#tasks").textContent()));
  clean(wrong);
}

async function waterfall(world) {
  const { page, wrong } = await open(world.browser, world.full.admin, { path: "sessions" });
  await page.getByLabel("Session or agent contains").fill("waterfall");
  await until("sessions that contain it", async () => (await cells(page, "#sessions", 1)).join() === "waterfall");
  await page.getByRole("link", { name: "waterfall" }).click();
  const rows = page.locator(".fall tbody tr[data-call]");
  await rows.first().waitFor();
  const told = await api(world, "sessions/waterfall");
  assert.equal(await rows.count(), told.calls.length);
  assert.ok((await page.locator(".fall tbody th.child").count()) > 0, "a child stands below its parent");
  assert.ok((await page.locator(".fall .lane i.hatched").count()) > 0, "waits between calls are drawn");
  const lanes = await page.locator(".fall .lane").evaluateAll((lanes) => lanes.map((lane) => [...lane.querySelectorAll("i:not(.hatched)")].map((bar) => [parseFloat(bar.style.left), parseFloat(bar.style.width), bar.title])));
  const end = Math.max(...told.calls.map((call) => call.phases.at(-1).end));
  told.calls.forEach((call, place) => {
    assert.equal(lanes[place].length, call.phases.length);
    call.phases.forEach((phase, at) => {
      const [left, width, title] = lanes[place][at];
      assert.ok(Math.abs(left - (phase.start / end) * 100) < 0.5, `${title}: ${left} for ${phase.start} of ${end}`);
      assert.ok(Math.abs(width - ((phase.end - phase.start) / end) * 100) < 0.5, `${title} ${width}`);
      assert.ok(title.startsWith(phase.name));
    });
  });
  await rows.first().getByRole("button").click();
  assert.equal(await rows.first().getByRole("button").getAttribute("aria-expanded"), "true");
  const detail = await page.locator(".fall tr.more").textContent();
  assert.ok(detail.includes(told.calls[0].id));
  const [row, facts] = await Promise.all([".fall tr.more > td", ".fall tr.more dl"].map((part) => page.locator(part).boundingBox()));
  const table = await page.locator("table.fall").boundingBox();
  assert.ok(row.width > table.width * 0.95 && facts.width > table.width * 0.9 && facts.height < 250, JSON.stringify({ row, facts, table }));
  await page.locator(".fall").locator("xpath=../..").getByText("on the critical path").waitFor();
  assert.match(detail, /Longest gap between tokens/);
  const sums = await page.locator("#session dl.facts").first().innerText();
  assert.match(sums, new RegExp(`Calls\\s+${told.total_calls}\\s`), "the number of its calls");
  // The critical path of a session, and its trace as a file.
  const analysis = await api(world, "sessions/waterfall/analysis");
  const onPath = new Set(analysis.critical_path.steps.map((step) => step.call).filter(Boolean));
  await page.locator(".analysis .path-parts li").first().waitFor();
  assert.equal(await page.locator(".fall tr.on-path").count(), told.calls.filter((call) => onPath.has(call.id)).length);
  const [longest] = await page.locator(".analysis .path-parts li").allTextContents();
  assert.ok(longest.includes(analysis.critical_path.parts[0].phase ?? "between calls"), longest);
  assert.match(await page.locator(".analysis").textContent(), /Prompt cache/);
  const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Trace for Perfetto" }).click()]);
  assert.match(file.suggestedFilename(), /^tokengauge-session-waterfall-perfetto-.*\.json$/);
  const trace = JSON.parse(fs.readFileSync(await file.path(), "utf8"));
  assert.ok(trace.traceEvents.filter((event) => event.cat === "call").length === told.total_calls);
  await page.getByRole("link", { name: "All sessions" }).click();
  await page.locator("#sessions tbody tr").first().waitFor();
  clean(wrong);
}

async function dark(world) {
  const brightness = (page) => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor.match(/\d+/g).reduce((sum, part) => sum + Number(part), 0));
  const { page, wrong } = await open(world.browser, world.full.admin, { colorScheme: "dark" });
  assert.ok((await brightness(page)) < 150);
  await page.getByLabel("Colours").selectOption("light");
  assert.ok((await brightness(page)) > 600);
  await page.reload();
  assert.ok((await brightness(page)) > 600, "the choice stays");
  await page.getByLabel("Colours").selectOption("dark");
  assert.ok((await brightness(page)) < 150);
  clean(wrong);
}

async function empty(world) {
  const { page, wrong } = await open(world.browser, world.empty.admin);
  await state(page, "live");
  const told = page.locator("#empty");
  await told.getByText("No calls yet").waitFor();
  assert.ok((await told.textContent()).includes(`${world.empty.proxy}/v1`), "the line to copy has the real address");
  assert.equal(await page.locator("#panels").isVisible(), false);
  await page.screenshot({ path: `${world.shots}/empty-1440-light.png`, fullPage: true });
  await call(world.empty.proxy, { route: "" });
  await page.locator("#panels").waitFor();
  assert.equal(await told.isVisible(), false);
  await page.locator("#last-calls tbody tr").first().waitFor();
  clean(wrong);
}

async function token(world) {
  const shown = [];
  const prepare = (page) => page.on("request", (request) => request.url().includes("/api/") && shown.push(request));
  const { page, context, wrong } = await open(world.browser, world.token.admin, { prepare, expected: /401/ });
  const dialog = page.getByRole("dialog", { name: "Token required" });
  await dialog.waitFor();
  await page.keyboard.press("Escape");
  assert.equal(await dialog.isVisible(), true);
  await dialog.getByLabel("Token").fill("a-wrong-token-of-some-length");
  await page.keyboard.press("Enter");
  await dialog.getByText("not the token").waitFor();
  await dialog.getByLabel("Token").fill(world.token.secret);
  await dialog.getByRole("button").click();
  await state(page, "live");
  assert.equal(await dialog.isVisible(), false);
  const headers = await shown.at(-1).allHeaders();
  assert.equal(headers.authorization, `Bearer ${world.token.secret}`);
  assert.ok(shown.every((request) => !request.url().includes(world.token.secret)));
  await page.reload();
  await state(page, "live");
  assert.equal(await dialog.isVisible(), false, "the tab remembers it");
  const kept = await page.evaluate(() => [JSON.stringify(localStorage), document.cookie].join());
  assert.ok(!kept.includes(world.token.secret));
  const other = await context.newPage();
  await other.goto(world.token.admin);
  await other.getByRole("dialog").waitFor();
  clean(wrong);
}

/** The page shows scores next to the figures of models and sessions. */
async function scores(world) {
  const { admin, proxy, secret } = world.token;
  const prepare = (page) => page.addInitScript((token) => sessionStorage.setItem("tokengauge-token", token), secret);
  const { page, wrong } = await open(world.browser, admin, { prepare });
  await state(page, "live");
  assert.ok(await page.locator("#models th.scored").first().isHidden(), "no column without scores");
  const session = `scored-${Date.now()}`;
  await call(proxy, { session, behave: "ttft=20ms,gap=2ms,tokens=60" });
  const sent = [{ name: "success", value: true, session }, { name: "grade", value: 3.5, session, source: "judge" }];
  const post = await fetch(`${admin}/api/v1/scores`, { method: "POST", headers: { authorization: `Bearer ${secret}` }, body: JSON.stringify(sent) });
  assert.equal(post.status, 201);
  await page.reload();
  await until("the averages", async () => /success 100%\s*grade 3\.5|grade 3\.5\s*success 100%/.test((await page.locator("#models td.scored").allInnerTexts()).join()), 20);
  assert.match(await page.locator("#models .score").first().getAttribute("title"), /95% interval.*in 1 sessions/);
  await page.goto(`${admin}/sessions/${session}`);
  const facts = async () => (await page.locator("#session .facts").first().innerText()).replaceAll("\n", " ");
  await until("the scores of the session", async () => /score success true of the session/i.test(await facts()) && /score grade 3\.5 of the session, from judge/i.test(await facts()));
  clean(wrong);
}

/** A deployment is a line on the curves, and says what it is under the pointer and in the table. */
async function marks(world) {
  const { admin, proxy, secret } = world.token;
  const post = (mark) => fetch(`${admin}/api/v1/marks`, { method: "POST", headers: { authorization: `Bearer ${secret}` }, body: JSON.stringify(mark) });
  await call(proxy, { behave: "ttft=20ms,gap=2ms,tokens=60" });
  const deployed = new Date(Date.now() - 60_000).toISOString();
  assert.equal((await post({ text: "deployed <b>v2</b>", time: deployed, upstream: "openai" })).status, 201);
  assert.equal((await post({ text: "of another model", time: deployed, model: "nobody" })).status, 201);
  const prepare = (page) => page.addInitScript((token) => sessionStorage.setItem("tokengauge-token", token), secret);
  const { page, wrong } = await open(world.browser, admin, { prepare });
  await state(page, "live");
  const label = page.locator("#tps .plot .mark");
  const area = page.locator("#tps .u-over");
  const over = await area.boundingBox();
  // Find positions of the pointer on a mark and off any mark.
  const said = async () => {
    const found = [];
    for (let x = 0; x < over.width; x += 2) {
      await page.mouse.move(over.x + x, over.y + 40);
      if (await label.isVisible()) found.push([x, await label.innerText()]);
    }
    return found;
  };
  let found = [];
  await until("a line that says what it is", async () => (found = await said()).length > 0, 20);
  assert.ok(found.length <= 8, `a mark is narrow: ${found.length} of ${over.width / 2}`);
  assert.match(found[0][1], /\d\d:\d\d:\d\d of another model \(nobody\)\n.*deployed <b>v2<\/b> \(openai\)/);
  // A mark's line is a column that differs from its neighbours from top to bottom.
  const middle = (found[0][0] + found.at(-1)[0]) / 2;
  const drawn = await area.evaluate((element, middle) => {
    const canvas = element.parentElement.querySelector("canvas");
    const [left, top] = [(element.offsetLeft + middle) * devicePixelRatio, element.offsetTop * devicePixelRatio];
    const height = Math.floor(element.clientHeight * devicePixelRatio);
    const { data } = canvas.getContext("2d").getImageData(Math.round(left) - 4, top, 9, height);
    const columns = Array.from({ length: 9 }, (_, column) => Array.from({ length: height }, (_, row) => data[(row * 9 + column) * 4 + 3]).filter((alpha) => alpha > 100).length / height);
    return Math.max(...columns);
  }, middle);
  assert.ok(drawn > 0.95, `${drawn} of the height is drawn`);
  assert.match(await page.locator("#tps .plot").getAttribute("aria-label"), /2 marks in this window/);
  // A plot without points says so, and still shows its marks.
  await choose(page, "outcome", "failed");
  await until("no point", async () => /no data in this window\. 2 marks in this window/.test(await page.locator("#tps .plot").getAttribute("aria-label")));
  await choose(page, "outcome", "");
  await page.locator("#tps summary").click();
  await until("both in the list", async () => (await page.locator("#tps .marks li").count()) === 2);
  await choose(page, "model", "gpt-4.1");
  await until("marks of the model and of all models", async () => (await page.locator("#tps .marks li").allInnerTexts()).join().match(/^[^,]*deployed <b>v2<\/b> \(openai\)$/));
  clean(wrong);
}

/** Two variants, one of which decodes a third as fast: the verdict, the intervals, and the metrics that are not compared. */
async function experiments(world) {
  const { page, wrong } = await open(world.browser, world.full.admin, { path: "experiments" });
  const shown = page.locator("#view-experiments .experiment", { hasText: "decoder" });
  await shown.getByText("The variants are not compared").waitFor();
  for (let session = 0; session < 12; session++) {
    const calls = [["a", "2ms"], ["b", "6ms"]].map(([variant, gap]) => call(world.full.proxy, { session: `${variant}-${session}-${Date.now()}`, experiment: `decoder/${variant}`, behave: `ttft=5ms,gap=${gap},tokens=60` }));
    await Promise.all(calls);
  }
  // All calls are in the ledger.
  const compared = async () => (await api(world, "experiments/decoder")).arms.map((arm) => arm.complete_units).join() === "12,12";
  await until("a comparison", compared, 20).catch(async (error) => assert.fail(`${error.message} ${(await api(world, "experiments/decoder")).verdict}`));
  const { verdict } = await api(world, "experiments/decoder");
  assert.match(verdict, /^with b, .*TPS/);
  await page.reload();
  await until("the page says so", async () => (await shown.locator(".verdict").textContent()).toLowerCase() === `${verdict}.`.toLowerCase());
  const report = await api(world, "experiments/decoder");
  const tps = report.comparisons[0].metrics.find(({ metric }) => metric === "tps");
  assert.equal(tps.decision, "worse", JSON.stringify(tps));
  const cells = await shown.locator('tr[data-metric="tps"] td').allTextContents();
  const signed = (share) => `${share < 0 ? "−" : "+"}${Math.abs(share * 100).toFixed(Math.abs(share) < 0.0995 ? 1 : 0)}`;
  assert.deepEqual(cells.slice(2, 4), [`${signed(tps.difference)} %`, `${signed(tps.lower)} to ${signed(tps.upper)}`]);
  assert.equal(cells[5], "worse");
  assert.ok(tps.value_lower < tps.value && tps.value < tps.value_upper, JSON.stringify(tps));
  for (const cell of cells.slice(0, 2)) assert.match(cell, /^[\d.,]+ \([\d.,]+ to [\d.,]+\)$/);
  // A share without any event is not compared, and the reason is stated.
  const failures = report.comparisons[0].metrics.find(({ metric }) => metric === "failures");
  assert.equal(await shown.locator('tr[data-metric="failures"] td.why').textContent(), failures.withheld);
  assert.match(await shown.locator(".arms").textContent(), /a: 12 units, 12 complete with 12 calls/);
  clean(wrong);
}

/** Goes through every view of a page, and gives each some time to fill. */
async function everyView(page, look) {
  const [{ id }] = (await (await page.request.get(new URL("/api/v1/calls?limit=1&agent=team%2F1", page.url()).href)).json()).calls;
  const paths = await page.locator(".view[data-path]").evaluateAll((views) => views.filter(({ dataset }) => dataset.path !== "pods").map((view) => [view.id.slice("view-".length), view.dataset.path]));
  const ids = { session: "waterfall", call: id };
  for (const [name, path] of [["now", ""], ...paths].map(([name, path]) => [name, path.replace("{id}", ids[name])])) {
    await page.goto(new URL(`/${path}`, page.url()).href);
    await state(page, "live");
    await page.waitForTimeout(400);
    await until(`${name} is there`, async () => (await page.locator(".view:not([hidden])").innerText()).length > 100);
    await look(name);
  }
}

async function fits(page, name) {
  const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(over <= 0, `${name} is ${over} pixels too wide`);
}

async function phone(world) {
  const { page, wrong } = await open(world.browser, world.full.admin, { width: 390, height: 844, hasTouch: true });
  await state(page, "live");
  await everyView(page, async (name) => {
    await fits(page, name);
    await page.screenshot({ path: `${world.shots}/${name}-390-light.png`, fullPage: true });
  });
  clean(wrong);
}

async function keyboard(world) {
  const { page, wrong } = await open(world.browser, world.full.admin);
  await state(page, "live");
  await page.locator("#models tbody tr").first().waitFor();
  const focused = () =>
    page.evaluate(() => {
      const element = document.activeElement;
      const drawn = element.matches(".windows input") ? element.nextElementSibling : element;
      const { outlineStyle, outlineWidth } = getComputedStyle(drawn);
      const name = element.getAttribute("aria-label") ?? element.labels?.[0]?.textContent ?? element.textContent;
      return { tag: element.tagName, name: name.trim(), visible: outlineStyle !== "none" && parseFloat(outlineWidth) >= 2 };
    });
  await page.keyboard.press("Tab");
  assert.equal((await focused()).name, "Skip to content");
  const seen = [];
  for (let step = 0; step < 200; step++) {
    await page.keyboard.press("Tab");
    const now = await focused();
    if (now.tag === "BODY") break;
    assert.ok(now.visible, `no visible focus on ${now.tag} ${now.name}`);
    assert.ok(now.name.length > 0, `a ${now.tag} without a name`);
    seen.push(now.name);
  }
  for (const name of ["Sessions", "Colours", "Compare", "By", "Recent finished calls", "Model", "All calls", "waterfall", "TPS p50", "/metrics"]) {
    assert.ok(seen.some((one) => one.startsWith(name)), `the keyboard never came to ${name}: ${seen}`);
  }
  await page.evaluate(() => document.activeElement.blur());
  await page.locator("#windows input:checked").focus();
  await page.keyboard.press("ArrowRight");
  assert.equal(await page.locator("#windows input:checked").getAttribute("value"), "1h");
  await page.locator('[data-view="sessions"]').focus();
  await page.keyboard.press("Enter");
  await page.locator("#sessions tbody tr").first().waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.id), "main");
  const button = page.locator("#sessions th", { hasText: "Cost" }).getByRole("button");
  await button.focus();
  await page.keyboard.press("Space");
  assert.equal(await page.locator("#sessions th", { hasText: "Cost" }).getAttribute("aria-sort"), "descending");
  clean(wrong);
}

async function accessible(world) {
  for (const colorScheme of ["light", "dark"]) {
    const { page } = await open(world.browser, world.full.admin, { colorScheme });
    await state(page, "live");
    // Dark mode may differ only in its colours.
    const rule = colorScheme === "dark" ? "color-contrast" : null;
    await everyView(page, async (name) => assert.deepEqual(await inaccessible(page, rule), [], `${name}, ${colorScheme}`));
  }
  const { page } = await open(world.browser, world.token.admin, { expected: /401/ });
  await page.getByRole("dialog").waitFor();
  assert.deepEqual(await inaccessible(page), [], "the dialog");
}

async function tenThousandSessions(world) {
  const { page, wrong } = await open(world.browser, world.full.admin, { path: "sessions" });
  await page.locator("#sessions tbody tr").first().waitFor();
  await page.getByLabel("Rows").selectOption("250");
  await until("250 rows", async () => (await page.locator("#sessions tbody tr").count()) === 250);
  const told = [];
  for (let cursor = ""; cursor !== null; ) {
    const answer = await api(world, `sessions?since=15m&limit=1000${cursor && `&cursor=${encodeURIComponent(cursor)}`}`);
    told.push(...answer.sessions.map(({ id }) => id));
    cursor = answer.next_cursor;
  }
  assert.ok(new Set(told).size >= world.sessions, `${told.length} of ${world.sessions} sessions`);
  const shown = () => page.locator("#sessions tbody th a").evaluateAll((links) => links.map((link) => link.title));
  for (let turn = 0; turn < 6; turn++) {
    assert.deepEqual(await shown(), told.slice(turn * 250, (turn + 1) * 250));
    const begin = Date.now();
    await page.getByRole("button", { name: "Older" }).click();
    const from = new Intl.NumberFormat("en").format((turn + 1) * 250 + 1);
    await page.locator(".pager span", { hasText: `${from}–` }).waitFor();
    assert.ok(Date.now() - begin < 15000, `a page took ${Date.now() - begin} ms`);
  }
  await page.getByRole("button", { name: "Newer" }).click();
  await page.locator(".pager span", { hasText: "1,251–" }).waitFor();
  assert.deepEqual(await shown(), told.slice(1250, 1500));
  // Each view has an address: back leads to the previous one, and another browser shows the same view. Forward leads to
  // the newer one.
  await page.goBack();
  await page.locator(".pager span", { hasText: "1,501–" }).waitFor();
  await page.goForward();
  await page.locator(".pager span", { hasText: "1,251–" }).waitFor();
  const { pathname, search } = new URL(page.url());
  const { page: another, wrong: itsWrong } = await open(world.browser, world.full.admin, { path: `${pathname.split("/").at(-1)}${search}` });
  await another.locator(".pager span", { hasText: "1,251–" }).waitFor();
  assert.deepEqual(await another.locator("#sessions tbody th a").evaluateAll((links) => links.map((link) => link.title)), told.slice(1250, 1500));
  await another.getByRole("button", { name: "Newer" }).click();
  await another.locator(".pager span", { hasText: /^1–250$/ }).waitFor();
  assert.ok(!new URL(another.url()).searchParams.has("cursor"));
  clean(itsWrong);
  await page.getByLabel("Session or agent contains").fill("many-04321");
  await until("the one", async () => (await cells(page, "#sessions", 1)).join() === "many-04321");
  clean(wrong);
}

async function unavailable(world) {
  const session = `short-${Date.now()}`;
  await call(world.full.proxy, { session, behave: "ttft=5ms,gap=2ms,tokens=6" });
  const { page, wrong } = await open(world.browser, world.full.admin);
  const row = page.locator("#last-calls tbody tr", { hasText: session });
  await row.waitFor();
  assert.ok((await row.textContent()).includes("too few tokens"));
  await page.locator("#last-calls summary").click();
  await page.getByText("Fewer than 32 tokens came after the first chunk").waitFor();
  clean(wrong);
}

async function coverage(world) {
  const session = `uncovered-${Date.now()}`;
  await call(world.full.proxy, { session, behave: "ttft=5ms,gap=2ms,tokens=6" });
  const { page, wrong } = await open(world.browser, world.full.admin);
  const line = page.locator("#coverage");
  await until("a line", async () => /\d+ of \d+ calls? have a cost.*; \d+ have a speed/.test(await line.textContent()));
  // Calls end meanwhile, and the page updates.
  await until("the figures of the API", async () => {
    const { calls, with_cost: priced } = await api(world, "coverage?since=15m");
    return (await line.textContent()).startsWith(`${priced} of ${calls} calls have a cost`);
  });
  await line.getByRole("link", { name: /too few tokens/ }).click();
  await page.waitForURL(/calls\?.*tps_unavailable=too_few_tokens/);
  const rows = page.locator("#calls tbody tr");
  await rows.filter({ hasText: session }).waitFor();
  const others = rows.filter({ hasNotText: "too few tokens" });
  assert.equal(await others.count(), 0, "only calls of the reason");
  clean(wrong);
}

async function cause(world) {
  for (let number = 0; number < 40; number++) {
    await call(world.full.proxy, { behave: "status=503", agent: "failing/1" });
    await call(world.full.proxy, { behave: "ttft=5ms,gap=1ms,tokens=8", agent: "working/1" });
  }
  const { page, wrong } = await open(world.browser, world.full.admin);
  const shown = page.locator("#slos .slo", { hasText: "availability" }).locator(".cause");
  const told = async () => (await api(world, "slos")).slos.find(({ name }) => name === "availability").cause?.sentence;
  const wanted = /bad calls are agent failing.*errors, mostly http_error 503\.$/;
  await until("the cause of the errors", async () => wanted.test((await told()) ?? ""), 45);
  await until("the page says so", async () => (await shown.count()) === 1 && (await shown.textContent()) === (await told()), 20);
  // The banner is at the top and leads to the objective. An overspent budget has the same wording everywhere.
  const { innerHeight } = await page.evaluate(() => ({ innerHeight }));
  const finding = page.locator("#health li", { hasText: "availability burns its budget" });
  await until("the finding says so", async () => (await finding.locator(".cause").textContent()) === (await told()));
  const box = await finding.boundingBox();
  assert.ok(box.y + box.height < innerHeight / 2, JSON.stringify(box));
  await finding.getByRole("link").click();
  assert.equal(new URL(page.url()).pathname, "/");
  // Scrolling uses whole pixels, and lines above may have half ones.
  await until("the objective is seen", async () => page.locator("#slos .slo", { hasText: "availability" }).evaluate((article) => article.getBoundingClientRect().top > -1 && article.getBoundingClientRect().top < innerHeight));
  const over = [await page.locator("#slos .slo", { hasText: "availability" }).locator(".left").textContent(), await figure(page, "budget")];
  for (const words of over) assert.match(words, /^over by [\d.]+%$/);
  const { page: phone, wrong: itsWrong } = await open(world.browser, world.full.admin, { width: 390, height: 844 });
  const seen = phone.locator("#health li .cause").first();
  await seen.waitFor();
  const there = await seen.boundingBox();
  assert.ok(there.y + there.height < 844, JSON.stringify(there));
  // Calls that an alert links to show its sentence above them.
  await phone.goto(`${world.full.admin}/calls?slo=availability&since=1h`);
  const sentence = phone.locator("#objective");
  await until("the objective above its calls", async () => (await sentence.textContent()).endsWith(await told()));
  assert.match(await sentence.textContent(), /^availability burns its budget .*× too fast: its budget is over by [\d.]+%\. /);
  await until("outcomes in full", async () => (await below(phone, "#calls", "Outcome")).length > 0);
  const tag = await phone.locator("#calls tbody .tag.bad").first().boundingBox();
  assert.ok(tag.x + tag.width <= 390, JSON.stringify(tag));
  const costs = await below(phone, "#calls", "Cost");
  assert.ok(costs.every((cost) => cost.includes("no billable tokens were counted")), costs[0]);
  assert.deepEqual(await inaccessible(phone), [], "calls of an objective");
  clean(itsWrong);
  await until("the title tells", async () => /^‼ availability( \+\d)? · tokengauge$/.test(await page.title()));
  await page.locator('[data-view="calls"]').click();
  assert.match(await page.title(), /^‼ availability( \+\d)? · Calls · tokengauge$/);
  clean(wrong);
}

const query = (page) => Object.fromEntries(new URL(page.url()).searchParams);

/** Everything has an address: a copied link opens the same, and back and forward go through it. */
async function addresses(world) {
  const { page, context, wrong } = await open(world.browser, world.full.admin);
  await state(page, "live");
  await page.locator("#models tbody a", { hasText: "claude-sonnet-4-5" }).click();
  assert.deepEqual(query(page), { model: "claude-sonnet-4-5" });
  await until("only one model", async () => (await cells(page, "#models", 1)).join() === "claude-sonnet-4-5");
  await choose(page, "outcome", "complete");
  await page.getByText("1h", { exact: true }).click();
  await page.getByLabel("Group by", { exact: true }).selectOption({ label: "Agents" });
  await page.locator("#models th", { hasText: "TTFT p50" }).getByRole("button").click();
  const all = { model: "claude-sonnet-4-5", outcome: "complete", since: "1h", by: "agent", sort: "-ttft" };
  assert.deepEqual(query(page), all);
  const looks = async (page) => ({
    model: await page.locator('#filters select[name="model"]').inputValue(),
    outcome: await page.locator('#filters select[name="outcome"]').inputValue(),
    since: await page.locator("#windows input:checked").getAttribute("value"),
    by: await page.getByLabel("Group by", { exact: true }).inputValue(),
    sort: (await page.locator("#models th[aria-sort]").getAttribute("aria-sort")) === "descending" ? "-ttft" : "",
  });
  const copied = await context.newPage();
  await copied.goto(page.url());
  await state(copied, "live");
  await until("the same rows", async () => (await cells(copied, "#models", 1)).join() === "team/1" && (await cells(page, "#models", 1)).join() === "team/1");
  assert.deepEqual(await looks(copied), all);
  await copied.close();
  await page.goBack();
  await page.goBack();
  assert.deepEqual(query(page), { model: "claude-sonnet-4-5", outcome: "complete", since: "1h" });
  await page.goForward();
  await page.goForward();
  await until("the same again", async () => (await cells(page, "#models", 1)).join() === "team/1");
  assert.deepEqual(await looks(page), all);
  // Other views keep the filters, and a filter can be removed.
  await page.locator('[data-view="calls"]').click();
  await until("calls of the model", async () => (await cells(page, "#calls", 2)).length > 5);
  assert.ok((await cells(page, "#calls", 2)).every((model) => model === "claude-sonnet-4-5"));
  await page.locator("#active a", { hasText: "model" }).click();
  await until("calls of other models", async () => (await cells(page, "#calls", 2)).some((model) => model !== "claude-sonnet-4-5"));
  assert.deepEqual(query(page), { outcome: "complete", since: "1h" });
  clean(wrong);
}

/** Calls, sessions, objectives, pills and tiles lead to what they stand for. */
async function links(world) {
  const { page, wrong } = await open(world.browser, world.full.admin, { path: "?agent=planner" });
  await state(page, "live");
  await until("calls of the agent", async () => (await cells(page, "#last-calls", 1)).length === 6);
  const [{ id, upstream }] = (await api(world, "calls?limit=1&agent=planner")).calls;
  await page.locator("#last-calls tbody th a").first().click();
  assert.ok(page.url().endsWith(`/calls/${id}`));
  await page.locator("#call dl.facts").waitFor();
  assert.match(await page.locator("#call").innerText(), new RegExp(`complete[\\s\\S]*${upstream}[\\s\\S]*planner[\\s\\S]*waterfall`));
  await page.reload();
  await page.locator("#call dl.facts").waitFor();
  await page.locator("#call a", { hasText: "waterfall" }).click();
  await page.locator(".fall tbody tr[data-call]").first().waitFor();
  assert.ok(page.url().endsWith("/sessions/waterfall"));
  await page.goBack();
  await page.locator("#call dl.facts").waitFor();
  await page.goBack();
  await until("the filter is as before", async () => (await cells(page, "#last-calls", 1)).length === 6);
  // The tile leads to the failures of another agent.
  await page.goto(`${world.full.admin}/?agent=crowd%2F1`);
  await until("failures", async () => /\d/.test(await figure(page, "errors")));
  await page.getByRole("link", { name: "Failed calls" }).click();
  assert.deepEqual(query(page), { agent: "crowd/1", outcome: "failed" });
  await until("a page of failures", async () => (await below(page, "#calls", "Outcome")).length >= 100);
  assert.ok((await below(page, "#calls", "Outcome")).every((outcome) => outcome.startsWith("unreachable")));
  await page.getByRole("button", { name: "Older calls" }).click();
  await until("two pages", async () => (await below(page, "#calls", "Outcome")).length >= 200);
  // Calls that spent the budget of an objective because their first token was late.
  await call(world.full.proxy, { session: "too-late", behave: "ttft=700ms,gap=2ms,tokens=40" });
  await page.locator('[data-view="now"]').click();
  await page.locator("#slos .slo h3 a", { hasText: "first-token" }).click();
  assert.equal(query(page).slo, "first-token");
  assert.equal(query(page).workload, "chat");
  await until("the late call", async () => (await below(page, "#calls", "Session")).includes("too-late"));
  const first = (await below(page, "#calls", "TTFT")).map((text) => (text.endsWith("ms") ? Number.parseFloat(text) / 1000 : Number.parseFloat(text)));
  assert.ok(first.length > 0 && first.every((seconds) => seconds > 0.5), first.join());
  await page.goto(`${world.full.admin}/?agent=crowd%2F1`);
  const pill = page.locator("#health a", { hasText: "of calls failed" });
  await pill.click();
  assert.equal(query(page).outcome, "failed");
  clean(wrong);
}

/** The page reports the errors in an address, and uses the rest of it. */
async function wrongAddress(world) {
  const path = "?modle=x&since=yesterday&model=gpt-5&sort=-price&to=2026-01-01T00:00:00Z&outcome=fine";
  const { page, wrong } = await open(world.browser, world.full.admin, { path });
  await state(page, "live");
  const said = await page.getByRole("alert").filter({ hasText: "The address" }).textContent();
  for (const part of ["has 5 errors", "`modle` is not a parameter of this view", "`since` must be a duration", "`to` needs `from`", "`outcome` must be one or more of complete", "`sort` must be one of name, calls"]) {
    assert.ok(said.includes(part), `${part} in ${said}`);
  }
  await until("what is right holds", async () => (await cells(page, "#models", 1)).join() === "gpt-5");
  await page.goto(`${world.full.admin}/?model=gpt-5`);
  await state(page, "live");
  assert.equal(await page.locator("#address-problem").isVisible(), false);
  await page.goto(`${world.full.admin}/#/sessions/waterfall`);
  await page.reload();
  await page.locator(".fall tbody tr[data-call]").first().waitFor();
  assert.ok(page.url().endsWith("/sessions/waterfall"), "an address of an older version");
  await page.goto(`${world.full.admin}/calls/00000000-0000-7000-8000-000000000000`);
  await page.getByText("no stored call has this id").waitFor();
  clean(wrong.filter((one) => !/404/.test(one)));
}

/** A custom time range, by hand and by the address. Later calls are not in it. */
async function range(world) {
  const { page, wrong } = await open(world.browser, world.full.admin, { path: "calls?agent=team%2F1" });
  await state(page, "live");
  await until("calls", async () => (await cells(page, "#calls", 1)).length > 10);
  const calls = (await api(world, "calls?agent=team%2F1&limit=1000")).calls.map(({ started_at: at }) => Date.parse(at)).toSorted();
  const middle = Math.floor(calls[Math.floor(calls.length / 2)] / 1000) * 1000;
  const written = (ms) => new Date(ms - new Date(ms).getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
  assert.equal(await page.locator("#more").getAttribute("open"), "", "what is filtered by is seen");
  await page.getByLabel("From", { exact: true }).fill(written(middle - 600_000));
  await page.getByLabel("to", { exact: true }).fill(written(middle));
  await page.getByRole("button", { name: "Show", exact: true }).click();
  assert.deepEqual(query(page), { agent: "team/1", from: new Date(middle - 600_000).toISOString(), to: new Date(middle).toISOString() });
  const within = calls.filter((at) => at < middle).length;
  assert.ok(within > 0 && within < calls.length);
  await until("those alone", async () => (await cells(page, "#calls", 1)).length === within);
  assert.equal(await page.locator("#windows input:checked").count(), 0);
  await call(world.full.proxy, { agent: "team/1" });
  await page.waitForTimeout(600);
  assert.equal((await cells(page, "#calls", 1)).length, within);
  await page.getByText("1h", { exact: true }).click();
  await until("all of them", async () => (await cells(page, "#calls", 1)).length > calls.length);
  assert.deepEqual(query(page), { agent: "team/1", since: "1h" });
  clean(wrong);
}

/** The saved file has the figures on the screen, and a name is not a formula. */
async function csv(world) {
  const session = `a "quoted", ${Date.now()}`;
  const path = `calls?${new URLSearchParams({ session })}`;
  await call(world.full.proxy, { agent: "=1+1/2", session });
  const { page, wrong } = await open(world.browser, world.full.admin, { path, acceptDownloads: true });
  await state(page, "live");
  await until("the call", async () => (await cells(page, "#calls", 1)).length === 1);
  const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Export calls as CSV" }).click()]);
  assert.match(download.suggestedFilename(), /^tokengauge-calls-.*\.csv$/);
  const lines = fs.readFileSync(await download.path(), "utf8").trimEnd().split("\r\n");
  assert.equal(lines.length, 2);
  const [{ id, seconds }] = (await api(world, path)).calls;
  const at = lines[0].split(",").indexOf("seconds.ttft");
  assert.ok(at > 0 && lines[1].startsWith(id), lines.join("\n"));
  assert.ok(lines[1].includes(`,${seconds.ttft},`) && lines[1].includes(`"${session.replaceAll('"', '""')}"`) && lines[1].includes(",'=1+1"), lines[1]);
  // The same calls with all columns, for analysis.
  const [parquet] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Export calls as Parquet" }).click()]);
  assert.match(parquet.suggestedFilename(), /^tokengauge-calls-.*\.parquet$/);
  await parquet.saveAs(`${world.shots}/calls.parquet`);
  const bytes = fs.readFileSync(`${world.shots}/calls.parquet`);
  assert.equal(bytes.subarray(0, 4).toString() + bytes.subarray(-4).toString(), "PAR1PAR1");
  // The points of a curve, in the unit of the API.
  await page.goto(world.full.admin);
  await page.locator("#ttft summary").click();
  await page.locator("#ttft details tbody tr").first().waitFor();
  const [curve] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Export Time to first token" }).click()]);
  const [names, newest] = fs.readFileSync(await curve.path(), "utf8").split("\r\n").map((line) => line.split(","));
  assert.match(newest?.[names.indexOf("at")] ?? `none in ${names}`, /^\d{4}-\d\d-\d\dT.*Z$/);
  assert.ok(names.includes("p50") && names.includes("requests_per_second"), names.join());
  clean(wrong);
}

/** The runbook that an alert links to. */
async function runbooks(world) {
  const sizes = [[1440, "light"], [1440, "dark"], [390, "light"], [3840, "dark"]];
  for (const [width, colorScheme] of sizes) {
    const { page, wrong } = await open(world.browser, world.full.admin, { path: "runbooks#tokengaugeerrorbudgetburn", width, colorScheme });
    const heading = page.locator("h2#tokengaugeerrorbudgetburn");
    await heading.waitFor();
    assert.equal(await heading.evaluate((heading) => heading.matches(":target") && heading.getBoundingClientRect().top >= 0 && heading.getBoundingClientRect().top < innerHeight), true);
    const rows = await page.locator("h2#sloerrorbudgetburn ~ table").first().locator("tbody tr").count();
    assert.ok(rows >= 8, `${rows} mitigations`);
    await page.getByRole("navigation", { name: "Alerts" }).getByRole("link", { name: "TokengaugeSpending" }).click();
    assert.equal(new URL(page.url()).hash, "#tokengaugespending");
    await fits(page, `runbooks at ${width}`);
    assert.deepEqual(await inaccessible(page), [], `runbooks, ${width} ${colorScheme}`);
    await page.screenshot({ path: `${world.shots}/runbooks-${width}-${colorScheme}.png` });
    await page.getByRole("link", { name: "tokengauge", exact: true }).click();
    await state(page, "live");
    clean(wrong);
  }
}

/** Queue and KV cache by the engine's own metrics, and an endpoint that is left alone. */
async function upstreams(world) {
  const { page, wrong } = await open(world.browser, world.full.admin, { path: "upstreams" });
  const row = (name) => page.locator("#upstreams tbody tr").filter({ has: page.getByRole("rowheader", { name, exact: true }) });
  const alone = async () => {
    // The page gets no input for seconds. Actions whose effect came too late are repeated.
    await call(world.full.proxy, { route: "/gone", agent: "crowd/1" });
    await page.reload();
    await row("gone").waitFor();
    return (await row("gone").innerText()).includes("1 of 1 ejected");
  };
  await until("an endpoint that is left alone", alone, 30);
  await until("the engine's figures", async () => /\d+%/.test(await row("openai").innerText()));
  const columns = await page.locator("#upstreams thead th").allTextContents();
  const cell = async (name, column) => (await row(name).locator("> *").allTextContents())[columns.indexOf(column)];
  const told = (await api(world, "upstreams")).upstreams.find(({ name }) => name === "openai");
  assert.ok(told.engine.up && told.engine.kv_cache >= 0.4, JSON.stringify(told));
  assert.match(await cell("openai", "KV cache"), /^(4\d|5\d)%$/);
  assert.match(await cell("openai", "Engine queue"), /^[012]$/);
  assert.match(await cell("anthropic", "KV cache"), /^–metrics_url of the upstream is not set$/);
  const [{ tps }] = (await api(world, "groups?by=upstream&upstream=openai&since=15m")).groups;
  assert.ok(Math.abs(Number(await cell("openai", "TPS p50")) - tps.p50) <= tps.p50 * 0.1);
  assert.match(await row("gone").getByRole("link", { name: "100%" }).getAttribute("class"), /\bbad\b/);
  await row("gone").getByRole("link", { name: "100%" }).click();
  assert.deepEqual(query(page), { upstream: "gone", outcome: "failed" });
  clean(wrong);
}

/** Dragging over a curve shows only that time; back undoes it. */
async function brush(world) {
  const { page, wrong } = await open(world.browser, world.full.admin);
  await state(page, "live");
  await until("a curve", async () => /\d/.test(await page.locator("#tps .keys b").nth(1).textContent()));
  const over = page.locator("#tps .u-over");
  await over.scrollIntoViewIfNeeded();
  const { x, y, width, height } = await over.boundingBox();
  await page.mouse.move(x + width * 0.5, y + height / 2);
  await page.mouse.down();
  await page.mouse.move(x + width * 0.9, y + height / 2, { steps: 5 });
  const [request] = await asks(page, /timeseries\?/, () => page.mouse.up());
  const { from, to } = query(page);
  assert.ok(Date.parse(from) < Date.parse(to), page.url());
  const asked = new URL(request.url()).searchParams;
  assert.deepEqual([asked.get("since"), asked.get("until")], [from, to]);
  await page.locator("#active a", { hasText: " to " }).waitFor();
  await page.goBack();
  assert.deepEqual(query(page), {});
  assert.equal(await page.locator("#windows input:checked").getAttribute("value"), "15m");
  clean(wrong);
}

/** A time range next to the previous range. */
async function against(world) {
  const calls = (await api(world, "calls?agent=team%2F1&limit=1000")).calls.filter(({ session }) => session?.startsWith("team-")).map(({ started_at: at }) => Date.parse(at)).toSorted();
  const middle = Math.floor(calls[Math.floor(calls.length / 2)] / 1000) * 1000;
  const [from, to] = [middle, middle + 300_000].map((ms) => new Date(ms).toISOString());
  const { page, wrong } = await open(world.browser, world.full.admin, { path: `?${new URLSearchParams({ agent: "team/1", by: "workload", from, to })}` });
  await state(page, "live");
  assert.equal(await page.locator("#tps .keys li", { hasText: "p50 previous" }).isVisible(), false);
  await page.getByLabel("Compare with", { exact: true }).selectOption({ label: "the previous period" });
  assert.equal(query(page).against, "before");
  const was = async () => (await cells(page, "#models", 2)).map((text) => Number(text.split("was ")[1]));
  const before = calls.filter((at) => at < middle).length;
  await page.locator("#tps .keys li", { hasText: "p50 previous" }).waitFor();
  assert.match(await page.locator("#tps .keys li", { hasText: "p50 previous" }).innerText(), /p50 previous\s*\d+/);
  await until("the calls before", async () => (await was()).reduce((sum, calls) => sum + calls, 0) === before);
  clean(wrong);
}

/** What was left of each budget over its time. */
async function burnDown(world) {
  const told = async () => (await api(world, "slos/availability/budget")).points;
  // A step is a minute with calls.
  await until("a step", async () => (await told()).length > 0);
  const second = Date.parse((await told())[0].at) + 60_000;
  await until("the next minute", async () => Date.now() > second, 70);
  await call(world.full.proxy, { behave: "ttft=5ms,gap=1ms,tokens=8", agent: "working/1" });
  await until("two steps", async () => (await told()).length > 1);
  const { page, wrong } = await open(world.browser, world.full.admin);
  const curve = page.locator("#slos .slo", { hasText: "availability" }).locator(".burn-down svg");
  await curve.waitFor();
  assert.match(await curve.getAttribute("aria-label"), /^Budget since \d\d:\d\d: from 100% left to (over by [\d.]+%|[\d.<>]+% left|spent); most of it was spent at \d\d:\d\d$/);
  const points = (await curve.locator("polyline").getAttribute("points")).split(" ");
  assert.ok(points.length > 1 && points.length <= (await told()).length);
  const { budget_remaining: left } = (await api(world, "slos")).slos.find(({ name }) => name === "availability");
  assert.ok(Math.abs((await told()).at(-1).budget_remaining - left) < 0.05, `${left}`);
  clean(wrong);
}

async function keys(world) {
  const { page, wrong } = await open(world.browser, world.full.admin);
  await state(page, "live");
  const dialog = page.getByRole("dialog", { name: "Keyboard shortcuts" });
  await page.keyboard.press("?");
  await dialog.waitFor();
  assert.deepEqual(await inaccessible(page), [], "the list of keys");
  await page.keyboard.press("Escape");
  assert.equal(await dialog.isVisible(), false);
  // A busy page handles the second key late.
  await page.evaluate(() => {
    const busy = () => {
      for (const end = performance.now() + 3000; performance.now() < end; );
    };
    addEventListener("keyup", () => setTimeout(busy, 0), { once: true });
  });
  await page.keyboard.press("g");
  await page.keyboard.press("s");
  await page.locator("#sessions tbody tr").first().waitFor();
  assert.ok(page.url().endsWith("/sessions"));
  await page.keyboard.press("2");
  assert.deepEqual(query(page), { since: "1h" });
  await page.keyboard.press("/");
  await page.keyboard.type("gcm?");
  await until("letters are letters", async () => query(page).q === "gcm?");
  assert.ok(page.url().includes("/sessions?"));
  await page.getByRole("button", { name: "Keyboard shortcuts" }).click();
  await dialog.getByLabel("Enable shortcuts").uncheck();
  await dialog.getByRole("button", { name: "Close" }).click();
  await page.reload();
  await state(page, "live");
  await page.keyboard.press("?");
  await page.waitForTimeout(200);
  assert.equal(await dialog.isVisible(), false, "they are off");
  clean(wrong);
}

/** A session in a circle is told of on Now and above the sessions, with a link. */
async function runaways(world) {
  const session = `circle-${Date.now()}`;
  for (let turn = 0; turn < 5; turn++) await call(world.full.proxy, { session, agent: "circling/1", behave: "ttft=1ms,gap=1ms,tokens=4,tool=12,seed=7" });
  await until("it is found", async () => (await api(world, "runaways")).runaways.some((one) => one.session === session));
  const { page, wrong } = await open(world.browser, world.full.admin);
  await state(page, "live");
  const finding = page.locator("#health a", { hasText: /Runaway session .*: the same tool call 5 times/ });
  await finding.waitFor();
  await page.locator('[data-view="sessions"]').click();
  const list = page.getByRole("region", { name: "1 runaway session" });
  await list.getByText("of circling/1: the same tool call 5 times").waitFor();
  assert.deepEqual(await inaccessible(page), [], "sessions with one that runs away");
  await page.screenshot({ path: `${world.shots}/runaways-1440-light.png` });
  await list.getByRole("link").click();
  assert.ok(page.url().endsWith(`/sessions/${session}`), page.url());
  clean(wrong);
}

/** The file of an incident opens by itself, on a screen, a phone and paper. */
async function capsule(world) {
  const { page, wrong } = await open(world.browser, world.full.admin, { acceptDownloads: true });
  await state(page, "live");
  const firing = page.locator("#slos .slo", { hasText: "availability" }).getByRole("button", { name: "Export incident report" });
  const save = async (button, file) => {
    const [download] = await Promise.all([page.waitForEvent("download", { timeout: 30_000 * PATIENCE }), button.click()]);
    assert.match(download.suggestedFilename(), /^tokengauge-incident-.*\.html$/);
    await download.saveAs(file);
  };
  const alone = `${world.shots}/incident.html`;
  await save(firing, alone);
  const button = page.getByRole("button", { name: "Export report of this period" });
  await save(button, `${world.shots}/time.html`);
  const [above, tiles] = [await button.boundingBox(), await page.locator("#tiles").boundingBox()];
  assert.ok(above.y + above.height + 4 <= tiles.y, "it touches no tile");
  clean(wrong);
  for (const [width, colorScheme] of [[1440, "light"], [1440, "dark"], [390, "light"]]) {
    const { page: file, wrong } = await open(world.browser, "file://", { path: alone.slice(1), width, colorScheme });
    const asked = [];
    file.on("request", (request) => asked.push(request.url()));
    await file.reload();
    await file.getByRole("heading", { name: /^Incident of availability/ }).waitFor();
    assert.match(await file.locator("blockquote").textContent(), /bad calls are/);
    assert.ok((await file.locator("svg").count()) >= 3, "curves");
    assert.ok((await file.locator(".lane i").count()) > 0, "phases of calls");
    await fits(file, `the file at ${width}`);
    assert.deepEqual(await inaccessible(file), [], `the file, ${width} ${colorScheme}`);
    assert.equal(asked.length, 1, `it loads nothing but itself: ${asked}`);
    await file.screenshot({ path: `${world.shots}/incident-${width}-${colorScheme}.png`, fullPage: true });
    clean(wrong);
  }
}

/** Two sessions by one address. */
async function beside(world) {
  const { page, wrong } = await open(world.browser, world.full.admin, { path: "sessions/waterfall" });
  await state(page, "live");
  await page.getByLabel("Id of another session").fill("team-0");
  await page.getByRole("button", { name: "Compare", exact: true }).click();
  const table = page.getByRole("region", { name: "Comparison of two sessions" });
  await table.waitFor();
  assert.ok(page.url().endsWith("/sessions/waterfall?with=team-0"), page.url());
  const calls = await table.locator("tr", { hasText: /^Calls/ }).locator("td").allTextContents();
  const wanted = await Promise.all(["waterfall", "team-0"].map(async (id) => String((await api(world, `sessions/${id}?limit=1`)).total_calls)));
  assert.deepEqual(calls.slice(0, 2), wanted);
  assert.match(calls[2], /^([+−]\d|the same)/);
  assert.deepEqual(await inaccessible(page), [], "two sessions");
  await page.reload();
  await table.waitFor();
  clean(wrong);
  const { page: none } = await open(world.browser, world.full.admin, { path: "sessions/waterfall?with=nobody", expected: /404/ });
  await none.getByText("nobody cannot be compared").waitFor();
}

/** Where alerts began and ended, with the file of each. */
async function alertHistory(world) {
  const { page, wrong } = await open(world.browser, world.full.admin, { path: "alerts", acceptDownloads: true });
  await state(page, "live");
  const row = page.locator("#alerts tbody tr", { hasText: "availability" }).first();
  await row.waitFor();
  assert.match(await row.innerText(), /firing/);
  assert.deepEqual(await inaccessible(page), [], "alerts");
  const { cause } = (await api(world, "slos")).slos.find(({ name }) => name === "availability");
  await until("its cause", async () => (await row.textContent()).includes((await api(world, "slos")).slos.find(({ name }) => name === "availability").cause.sentence)).catch((error) => assert.fail(`${error.message}: ${cause?.sentence}`));
  const save = page.waitForEvent("download", { timeout: 30_000 * PATIENCE });
  const [asked] = await asks(page, /\/capsule\?/, () => row.getByRole("button", { name: "Export" }).click());
  assert.equal(new URL(asked.url()).searchParams.get("slo"), "availability");
  const download = await save;
  assert.match(download.suggestedFilename(), /^tokengauge-incident-availability-.*\.html$/);
  const file = fs.readFileSync(await download.path(), "utf8");
  assert.match(file, /^<!doctype html>/);
  assert.match(file, /Incident of availability/);
  const phone = await open(world.browser, world.full.admin, { path: "alerts", width: 390, height: 844 });
  const [said, button] = [phone.page.locator("#alerts td.said").first(), phone.page.getByRole("button", { name: "Export" }).first()];
  await said.waitFor();
  for (const part of [said, button]) {
    const { x, width } = await part.boundingBox();
    assert.ok(x >= 0 && x + width <= 390, `${x} ${width}`);
  }
  assert.deepEqual(await inaccessible(phone.page), [], "alerts on a phone");
  clean(phone.wrong);
  await row.getByRole("link").click();
  assert.match(page.url(), /\/calls\?.*from=/);
  assert.equal(query(page).slo, "availability");
  clean(wrong);
}

/** What users, agents and models cost over time, as curves, as a table, and as calls and sessions. */
async function costs(world) {
  const user = `spender-${Date.now()}`;
  for (let turn = 0; turn < 3; turn++) await call(world.full.proxy, { user, session: user, agent: "spender/1", model: "gpt-5" });
  await call(world.full.proxy, { user, session: user, agent: "spender/1", model: "gpt-5", behave: "ttft=20ms,gap=2ms,tokens=20,tool=12" });
  await until("they are in the ledger", async () => (await api(world, "calls?agent=spender%2F1")).calls.some((call) => call.session === user && call.tools === "lookup"), 20);
  const { page, wrong } = await open(world.browser, world.full.admin, { path: "costs", acceptDownloads: true });
  await state(page, "live");
  for (const [label, kind] of [["Agents", "agent"], ["Tools", "tool"], ["Upstreams", "upstream"], ["Models", "model"]]) {
    await asks(page, /\/costs\?/, () => page.locator("#costs select").selectOption({ label }));
    const told = await api(world, `costs?dimension=${kind}&since=15m&step=15s`);
    const named = told.series.map(({ name }) => name ?? "calls without a name");
    await until(`rows by ${kind}`, async () => (await cells(page, "#costs .scroll:not(.tall)", 1)).filter((name) => !/^\d+ others?$/.test(name)).toSorted().join() === named.toSorted().join());
    const dollars = (await cells(page, "#costs .scroll:not(.tall)", 2)).map((cell) => Number.parseFloat(cell.replace("$", ""))).filter(Number.isFinite);
    assert.deepEqual(dollars, dollars.toSorted((one, other) => other - one), "the most expensive first");
    // The legend covers the whole window.
    const [, legend] = (await page.locator("#costs .keys li").first().innerText()).match(/\$([\d.]+)$/);
    assert.ok(Math.abs(Number(legend) - told.series[0].cost_usd) <= told.series[0].cost_usd * 0.2, `${legend} ${told.series[0].cost_usd}`);
    assert.ok(dollars[0] > 0 && Math.abs(dollars[0] - told.series[0].cost_usd) <= told.series[0].cost_usd * 0.2, `${dollars} ${told.series[0].cost_usd}`);
  }
  // The painted columns of the stack have the colours of the legend.
  const painted = () => page.locator("#costs canvas").evaluate((canvas) => {
    const probe = document.createElement("i");
    document.body.append(probe);
    const wanted = ["--series-1", "--series-2"].map((name) => {
      probe.style.color = `var(${name})`;
      return getComputedStyle(probe).color.match(/\d+/g).map(Number);
    });
    probe.remove();
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    return wanted.map((colour) => {
      let pixels = 0;
      for (let at = 0; at < data.length; at += 4) if (colour.every((part, place) => Math.abs(part - data[at + place]) < 8)) pixels += 1;
      return pixels;
    });
  });
  await until("a stack of colours", async () => (await painted()).every((pixels) => pixels > 20));
  await page.getByRole("button", { name: "Tokens", exact: true }).click();
  assert.equal(query(page).of, "tokens");
  await page.locator("#costs summary").click();
  await until("a table of the curves", async () => (await page.locator("#costs details tbody tr").count()) > 0);
  const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Export cost over time as CSV" }).click()]);
  const [head, ...lines] = fs.readFileSync(await download.path(), "utf8").trimEnd().split("\r\n");
  assert.ok(head.startsWith("at,model,calls,errors,tokens.input") && lines.length > 2, head);
  // A name leads to its breakdown.
  await page.locator("#costs select").selectOption({ label: "Agents" });
  const row = page.locator("#costs .scroll:not(.tall) tbody tr", { hasText: "spender/1" });
  await row.getByRole("link", { name: "by cost: sessions of spender/1" }).click();
  await page.locator("#sessions tbody tr", { hasText: user }).waitFor();
  assert.deepEqual(query(page), { agent: "spender/1", sort: "-cost" });
  await page.goBack();
  await row.locator("td").nth(3).getByRole("link").click();
  await page.locator("#calls tbody tr", { hasText: "spender/1" }).first().waitFor();
  assert.deepEqual(query(page), { agent: "spender/1" });
  await page.goBack();
  await page.locator("#costs select").selectOption({ label: "Tools" });
  await page.locator("#costs .scroll:not(.tall) tbody tr", { hasText: "lookup" }).locator("td").nth(3).getByRole("link").click();
  await page.locator("#calls tbody tr", { hasText: "spender/1" }).first().waitFor();
  assert.deepEqual(query(page), { tool: "lookup" });
  await page.goBack();
  await page.locator("#costs select").selectOption({ label: "Agents" });
  await page.getByRole("link", { name: "Compare cost and speed" }).click();
  assert.deepEqual(query(page), { by: "agent" });
  await until("the table is seen", () => page.locator("#models-title").evaluate((title) => title.getBoundingClientRect().top >= -1 && title.getBoundingClientRect().top < innerHeight / 2));
  await until("cost and speed of agents", async () => (await page.locator("#models thead th").allTextContents()).includes("Cost / call"));
  const hidden = await page.locator("#models .scroll").evaluate((scroll) => scroll.scrollWidth - scroll.clientWidth);
  assert.ok(hidden <= 0, `${hidden} pixels of the table are cut off`);
  assert.deepEqual(await inaccessible(page), [], "side by side");
  // One entry more than there are colours is named, instead of shown as "1 other".
  for (let model = 1; model <= 9; model++) await call(world.full.proxy, { model: `ninth-${model}`, agent: "ninth/1" });
  await until("nine models", async () => (await api(world, "costs?agent=ninth%2F1&since=15m&series=9")).series.length === 9, 20);
  await page.goto(`${world.full.admin}/costs?agent=ninth%2F1`);
  await until("all of them by name", async () => (await cells(page, "#costs .scroll:not(.tall)", 1)).toSorted().join() === Array.from({ length: 9 }, (_, at) => `ninth-${at + 1}`).join());
  // A month is shown by UTC days, for which a ledger has sums by user.
  await asks(page, /\/costs\?.*dimension=user.*step=86400s/, () => page.goto(`${world.full.admin}/costs?agent=ninth%2F1&by=user&since=30d`));
  await until("nobody's calls", async () => (await cells(page, "#costs .scroll:not(.tall)", 1)).join() === "calls without a name");
  clean(wrong);
}

/** Names to filter by are there whichever view is opened first. */
async function filterNames(world) {
  for (const path of ["calls", "sessions", "costs", "upstreams"]) {
    const { page, context, wrong } = await open(world.browser, world.full.admin, { path });
    for (const [name, value] of [["model", "claude-sonnet-4-5"], ["workload", "chat"]]) await page.locator(`#filters select[name="${name}"] option[value="${value}"]`).waitFor({ state: "attached" });
    clean(wrong);
    await context.close();
  }
}

/** Without a ledger, every view of finished calls says that old ones are dropped, and so does the API. */
async function memory(world) {
  const { admin, proxy } = world.empty;
  await call(proxy, { route: "", session: "remembered", agent: "forgetful/1" });
  for (const path of ["", "sessions", "calls", "costs"]) {
    const { page, context, wrong } = await open(world.browser, admin, { path });
    await page.getByText("At most the last 1,000 calls").waitFor();
    clean(wrong);
    await context.close();
  }
  const { page, wrong } = await open(world.browser, admin, { path: "sessions/remembered" });
  await page.locator("#session").getByText("At most the last 1,000 calls of all sessions").waitFor();
  assert.deepEqual(await inaccessible(page), [], "a session in memory");
  clean(wrong);
  const { page: none } = await open(world.browser, admin, { path: "sessions/dropped", expected: /404/ });
  await none.getByText("at most the last 1000 calls").waitFor();
  const { page: kept } = await open(world.browser, world.full.admin, { path: "sessions/waterfall" });
  await kept.locator(".fall tbody tr[data-call]").first().waitFor();
  assert.equal(await kept.getByText("in memory").count(), 0);
}

/** A session of two agents whose calls overlap, one of which failed. */
async function sessionParts(world) {
  const session = `parts-${Date.now()}`;
  const slow = (agent) => call(world.full.proxy, { session, agent, behave: "ttft=20ms,gap=10ms,tokens=80" });
  await Promise.all([slow("one/1"), slow("two/1"), slow("two/1")]);
  await call(world.full.proxy, { session, agent: "one/1", behave: "status=503" });
  await until("it is in the ledger", async () => (await api(world, `sessions/${session}`)).total_calls === 4, 20);
  const { page, wrong } = await open(world.browser, world.full.admin, { path: `sessions/${session}` });
  await page.locator(".fall tbody tr[data-call]").nth(3).waitFor();
  assert.match(await page.locator("#session .added").innerText(), /^Sum of all loaded calls: .*, more than the session's duration of .*, because calls overlapped\.$/);
  assert.equal(await page.locator(".fall tbody th", { hasText: "failed:" }).count(), 1);
  await page.locator("#session .keys li", { hasText: "failed" }).waitFor();
  const { groups } = await api(world, `groups?by=agent&session=${session}`);
  assert.equal(groups.length, 2);
  const rows = page.locator("table.by-agent tbody tr");
  await rows.first().waitFor();
  const shares = await page.locator("table.by-agent tbody tr td:nth-child(3)").allTextContents();
  const all = groups.reduce((sum, { cost_usd: cost }) => sum + cost, 0);
  assert.ok(all > 0);
  const wanted = groups.toSorted((one, other) => other.cost_usd - one.cost_usd);
  assert.deepEqual(await rows.locator("th").allTextContents(), wanted.map(({ name }) => name));
  wanted.forEach(({ cost_usd: cost }, place) => assert.ok(Math.abs(Number.parseFloat(shares[place]) - (cost / all) * 100) <= 0.6, shares.join()));
  assert.deepEqual(await inaccessible(page), [], "a session of two agents");
  await page.getByRole("link", { name: "1 failed" }).click();
  await until("the failed call", async () => (await below(page, "#calls", "Outcome")).length === 1);
  assert.match((await below(page, "#calls", "Outcome"))[0], /^HTTP error/);
  clean(wrong);
}

/** A stream that repeats itself says so while it runs, and so does the call. */
async function repeats(world) {
  const { page, wrong } = await open(world.browser, world.full.admin);
  await state(page, "live");
  const session = `repeats-${Date.now()}`;
  const going = call(world.full.proxy, { session, behave: "ttft=20ms,gap=4ms,tokens=2000,repeat=7@200" });
  const stream = page.locator("#streams tbody tr", { hasText: session });
  await stream.getByText(/^repeats 7 tokens for [\d,.]+$/).waitFor();
  await going;
  await until("the stored call", async () => (await api(world, `calls?session=${session}`)).calls.length === 1);
  const [{ id }] = (await api(world, `calls?session=${session}`)).calls;
  await page.goto(`${world.full.admin}/calls?session=${session}`);
  await page.getByText("complete, repeats itself").first().waitFor();
  await page.goto(`${world.full.admin}/calls/${id}`);
  const fact = page.locator("#call dl.facts > div", { hasText: "Repetition" });
  await fact.getByText(/^repeats 7 tokens for [\d,.]+$/).waitFor();
  assert.match(await fact.innerText(), /starts at token \d+, (89(\.\d+)?|90)% of the output/);
  clean(wrong);
}

/** A call that stood still says so, in the list and by itself. */
async function stalls(world) {
  const session = `stalled-${Date.now()}`;
  await call(world.full.proxy, { session, behave: "ttft=20ms,gap=5ms,tokens=60,stall=3000ms@30" });
  const { page, wrong } = await open(world.browser, world.full.admin, { path: `calls?session=${session}` });
  // About as long as the page was stopped: on a busy machine the frame before or after may be late.
  await until("its gap", async () => Number.parseFloat((await below(page, "#calls", "Longest gap"))[0]) >= 2);
  assert.equal(await page.locator("#calls tbody .tag.good").count(), 0, "it is not shown as good");
  await page.locator("#calls tbody th a").click();
  assert.match(await page.locator("#call .stalled").innerText(), /^1 stall The longest gap without a token was \d+(\.\d+)? s, [789]\d% of the call\.$/);
  const [gap, whole] = await Promise.all([".split.gap i", ".split:not(.gap)"].map((part) => page.locator(`#call ${part}`).first().boundingBox()));
  assert.ok(gap.width > whole.width * 0.7 && gap.width < whole.width * 0.97, JSON.stringify([gap, whole]));
  assert.deepEqual(await inaccessible(page), [], "a call that stood still");
  clean(wrong);
}

/** Calls that end while they are listed stand where they began. */
async function callOrder(world) {
  const agent = `order-${Date.now()}`;
  await call(world.full.proxy, { agent });
  const { page, wrong } = await open(world.browser, world.full.admin, { path: `calls?agent=${agent}` });
  await state(page, "live");
  await until("the first", async () => (await below(page, "#calls", "Session")).length === 1);
  const long = call(world.full.proxy, { agent, session: "long", behave: "ttft=1500ms,gap=5ms,tokens=60" });
  await new Promise((wake) => setTimeout(wake, 300));
  await call(world.full.proxy, { agent, session: "brief", behave: "ttft=5ms,gap=2ms,tokens=40" });
  await long;
  const sessions = async () => (await below(page, "#calls", "Session")).map((text) => text.replace(/^–.*/, ""));
  await until("all three", async () => (await sessions()).length === 3);
  assert.equal((await sessions()).join(), "brief,long,", "by their beginnings");
  clean(wrong);
}

/** Users by name, from a file that stays in the browser. */
async function userNames(world) {
  const user = `ann-${Date.now()}@example.com`;
  await call(world.full.proxy, { user, session: "named", agent: "named/1" });
  await until("the call", async () => (await api(world, "calls?agent=named%2F1")).calls.length > 0, 20);
  const { user: hash } = (await api(world, "calls?agent=named%2F1&limit=1")).calls[0];
  assert.match(hash, /^[0-9a-f]{32}$/);
  const { page, wrong } = await open(world.browser, world.full.admin, { path: "costs?by=user", acceptDownloads: true });
  const sent = [];
  page.on("request", (request) => sent.push(`${request.url()} ${request.postData() ?? ""}`));
  await state(page, "live");
  const table = page.locator("#costs .scroll:not(.tall)");
  await table.getByText(hash).waitFor();
  await page.locator("#more summary").click();
  const names = page.getByRole("group", { name: "Names of users" });
  const give = (text) => names.getByLabel("Names of users from a file").setInputFiles({ name: "users.txt", mimeType: "text/plain", buffer: Buffer.from(text) });
  await give(`# ours\n${user} = Ann <b>A.</b>\nnobody\n`);
  await table.getByText("Ann <b>A.</b>").waitFor();
  await names.getByText("2 names").waitFor();
  assert.equal(await table.getByText(hash).count(), 0);
  const users = page.locator('#filters select[name="user"] option');
  await until("she can be chosen", async () => (await users.allTextContents()).includes("Ann <b>A.</b>"));
  const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Export cost over time as CSV" }).click()]);
  const saved = fs.readFileSync(await download.path(), "utf8");
  assert.ok(saved.includes("Ann <b>A.</b>") && !saved.includes(hash), saved);
  // A filter by the name requests the hash.
  await asks(page, new RegExp(`costs\\?.*user=${hash}`), () => choose(page, "user", hash));
  await page.locator("#active a", { hasText: "user Ann <b>A.</b>" }).waitFor();
  // The page stores nothing without consent, and stored data can be deleted.
  await page.reload();
  await table.getByText(hash).waitFor();
  await page.locator("#active a", { hasText: hash.slice(0, 8) }).waitFor();
  await give(user);
  await names.getByLabel("Store names on this computer").check();
  await page.reload();
  await table.getByText(user).waitFor();
  await page.locator('[data-view="calls"]').click();
  await page.locator("#calls tbody tr th a").first().click();
  await page.locator(".facts", { hasText: user }).waitFor();
  await page.goto(`${world.full.admin}/sessions/named`);
  await page.locator(".facts", { hasText: user }).waitFor();
  assert.deepEqual(await inaccessible(page), [], "a session of a named user");
  await page.goto(`${world.full.admin}/?by=user&cost=user&agent=named%2F1`);
  await page.locator("#models").getByText(user).waitFor();
  await page.locator("#cost").getByText(user).waitFor();
  await names.getByRole("button", { name: "Forget names" }).click();
  await page.locator("#models").getByText(hash).waitFor();
  assert.equal(await page.evaluate(() => localStorage.getItem("tokengauge-user-names")), null);
  assert.ok(sent.length > 10 && sent.every((request) => !request.includes("ann-") && !request.includes("Ann")), "names are sent nowhere");
  clean(wrong);
}

/** How many calls were how fast over time; a part of it is seen alone by dragging. */
async function heat(world) {
  const { page, wrong } = await open(world.browser, world.full.admin, { acceptDownloads: true });
  await state(page, "live");
  const [shown] = await asks(page, /timeseries\?.*metric=ttft.*counts=true/, () => page.locator("#ttft").getByRole("button", { name: "Heat map" }).click());
  assert.equal(query(page).speeds, "heat");
  const told = await (await page.request.get(shown.url())).json();
  const all = told.points.flatMap(({ counts }) => counts ?? []).reduce((sum, count) => sum + count, 0);
  const [whole] = (await api(world, "groups?since=15m")).groups;
  assert.ok(all > 20 && Math.abs(all - whole.ttft.calls) <= whole.ttft.calls * 0.2, `${all} of ${whole.ttft.calls}`);
  const plot = page.locator("#ttft .plot:visible");
  await until("cells", async () => /calls by class. Last: p50 \d/.test(await plot.getAttribute("aria-label")));
  // Some cell under the pointer has calls and shows them.
  const place = async () => {
    await plot.locator(".u-over").scrollIntoViewIfNeeded();
    return plot.locator(".u-over").boundingBox();
  };
  let over = await place();
  const said = async () => {
    for (let x = over.width - 1; x > 0; x -= 4) {
      for (let y = 4; y < over.height; y += 6) {
        await page.mouse.move(over.x + x, over.y + y);
        const text = await page.locator("#ttft .keys:visible .at").textContent();
        if (/: [1-9]\d* calls? of /.test(text)) return text;
      }
    }
    return "";
  };
  assert.match(await said(), /^\d\d:\d\d:\d\d: \d+ calls? of [\d.]+ m?s to [\d.]+ m?s$/);
  await page.locator("#ttft details:visible summary").click();
  await page.locator("#ttft details:visible tbody tr").first().waitFor();
  const head = await page.locator("#ttft details:visible thead th").allTextContents();
  assert.deepEqual(head.slice(0, 2), ["From", "p50"]);
  assert.ok(head.length > 3 && head.slice(2).every((label) => / to /.test(label)), head.join());
  const cellsOfTable = await page.locator("#ttft details:visible tbody td:nth-child(n + 3)").allTextContents();
  assert.ok(cellsOfTable.map(Number).reduce((sum, count) => sum + count, 0) >= all);
  assert.deepEqual(await inaccessible(page), [], "heat maps");
  for (const [width, colorScheme] of [[1440, "light"], [1440, "dark"], [390, "dark"]]) {
    const { page: other, wrong } = await open(world.browser, world.full.admin, { path: "?speeds=heat", width, colorScheme });
    await state(other, "live");
    await until("cells", async () => /Last: p50 \d/.test(await other.locator("#tps .plot:visible").getAttribute("aria-label")));
    await fits(other, `heat maps at ${width}`);
    await other.screenshot({ path: `${world.shots}/heat-${width}-${colorScheme}.png` });
    clean(wrong);
  }
  over = await place();
  await page.mouse.move(over.x + over.width * 0.5, over.y + 40);
  await page.mouse.down();
  await page.mouse.move(over.x + over.width * 0.9, over.y + 40, { steps: 5 });
  await asks(page, /timeseries\?.*counts=true/, () => page.mouse.up());
  assert.ok(query(page).from && query(page).to && query(page).speeds === "heat", page.url());
  await page.locator("#tps").getByRole("button", { name: "Curves" }).click();
  assert.equal(query(page).speeds, undefined);
  clean(wrong);
}

/** The row under the pressed mouse does not move until it is released: a click on a row that moves would lead nowhere. */
async function pressed(world) {
  const { page, wrong } = await open(world.browser, world.full.admin);
  await state(page, "live");
  const link = page.locator("#last-calls tbody th a").first();
  await link.scrollIntoViewIfNeeded();
  const [leads, box] = [await link.getAttribute("href"), await link.boundingBox()];
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  await page.mouse.down();
  const session = `pressed-${Date.now()}`;
  const row = page.locator("#last-calls tbody tr", { hasText: session });
  await Promise.all([page.waitForResponse(/\/api\/v1\/calls\?/), call(world.full.proxy, { session })]);
  await new Promise((wake) => setTimeout(wake, 1000));
  assert.equal(await row.count(), 0, "the list does not change");
  await page.mouse.up();
  await until("the call that was pressed", async () => new URL(page.url()).pathname === leads);
  await page.goBack();
  await row.waitFor();
  // A press that is not a click must not stop updates for long.
  await page.locator("#last-calls thead th").first().scrollIntoViewIfNeeded();
  const head = await page.locator("#last-calls thead th").first().boundingBox();
  await page.mouse.move(head.x + 5, head.y + 5);
  await page.mouse.down();
  const later = `released-${Date.now()}`;
  await call(world.full.proxy, { session: later });
  await page.mouse.up();
  await page.locator("#last-calls tbody tr", { hasText: later }).waitFor();
  clean(wrong);
}

/** A search that is not over when another view is opened is not carried to it. */
async function typing(world) {
  // The call of the previous scenario may be too old to be shown.
  await call(world.full.proxy, { session: "waterfall", agent: "planner" });
  const { page, wrong } = await open(world.browser, world.full.admin, { path: "sessions" });
  const search = page.getByLabel("Session or agent contains");
  await page.getByRole("link", { name: "waterfall", exact: true }).waitFor();
  await page.evaluate(() => {
    const search = document.querySelector("#sessions input[type=search]");
    search.value = "water";
    search.dispatchEvent(new Event("input"));
    [...document.querySelectorAll("#sessions tbody th a")].find((link) => link.title === "waterfall").click();
  });
  await page.locator(".fall tbody tr[data-call]").first().waitFor();
  await new Promise((wake) => setTimeout(wake, 500));
  assert.equal(new URL(page.url()).search, "");
  assert.equal(await page.locator("#address-problem").textContent(), "");
  // Input that is typed while the page loads is not lost.
  await page.goBack();
  await page.getByRole("link", { name: "waterfall", exact: true }).waitFor();
  assert.equal(await search.inputValue(), "");
  await search.fill("water");
  await page.evaluate(() => document.dispatchEvent(new Event("names")));
  await until("the search in the address", async () => query(page).q === "water");
  assert.equal(await search.inputValue(), "water");
  clean(wrong);
}

/** A long session that is opened again still has the calls before those that are asked for. */
async function longSession(world) {
  const session = `long-${Date.now()}`;
  for (let turn = 0; turn < 205; turn += 1) await call(world.full.proxy, { session, route: "/gone" });
  await until("its calls", async () => (await api(world, `sessions/${session}`)).total_calls === 205, 20);
  const { page, wrong } = await open(world.browser, world.full.admin, { path: `sessions/${session}` });
  const rows = async () => (await page.locator(".fall tbody tr[data-call]").count());
  await until("its first calls", async () => (await rows()) === 200);
  await page.getByRole("link", { name: "All sessions" }).click();
  await page.locator("#sessions tbody tr").first().waitFor();
  await Promise.all([page.waitForResponse(new RegExp(`sessions/${session}\\?`)), page.goBack()]);
  await page.getByRole("button", { name: "More calls" }).click();
  await until("all calls", async () => (await rows()) === 205);
  clean(wrong);
}

async function pictures(world) {
  for (const [width, height, colorScheme] of [[1440, 900, "light"], [1440, 900, "dark"], [768, 1024, "light"], [390, 844, "dark"], [3840, 2160, "light"]]) {
    const { page, wrong } = await open(world.browser, world.full.admin, { width, height, colorScheme });
    await state(page, "live");
    await everyView(page, async (name) => {
      await fits(page, name);
      await page.screenshot({ path: `${world.shots}/${name}-${width}-${colorScheme}.png`, fullPage: true });
    });
    clean(wrong);
  }
}

/** Each group has separate proxies and a separate browser, and is played in this order on one worker of pytest. test_page.py reads it. */
export const groups = {
  // Scenarios before any fault.
  first: { start, liveUpdate, polling, filter, sort, compare, waterfall, dark, empty, token, keyboard, filterNames, against, brush, keys },
  // `cause` spends the budget of an objective, and later scenarios show that.
  incident: { unavailable, coverage, cause, burnDown, upstreams, marks, scores, experiments, runaways, capsule, alertHistory },
  many: { tenThousandSessions, addresses, links, wrongAddress, range, csv, beside, memory },
  calls: { costs, sessionParts, repeats, stalls, callOrder, userNames, heat, pressed, typing, longSession },
  looks: { phone, accessible, runbooks, pictures },
};
export const scenarios = Object.assign({}, ...Object.values(groups));
