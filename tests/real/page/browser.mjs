// Debian's Chromium, with pages that report everything that must not happen in them.
import fs from "node:fs";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
/** How many times as long as on an idle machine a page may take, in a wait that ends as soon as it can. */
export const PATIENCE = 6;
const AXE = fs.readFileSync(new URL("node_modules/axe-core/axe.min.js", import.meta.url), "utf8");

/** A browser with fonts that do not depend on the machine. */
export function launch() {
  const env = { ...process.env, FONTCONFIG_FILE: fileURLToPath(new URL("fonts.conf", import.meta.url)) };
  return chromium.launch({ executablePath: "/usr/bin/chromium", args: FLAGS, env });
}

/** A page at `base` + `path`. `wrong` has its errors, except those that `expected` matches. */
export async function open(browser, base, { path = "", expected = null, prepare = null, width = 1440, height = 900, ...options } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, locale: "en-GB", ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(30_000 * PATIENCE);
  const wrong = [];
  const note = (text) => expected?.test(text) || wrong.push(text);
  // Chromium warns of canvases that are read often. The scenarios read them until a picture appears.
  const ofScenarios = (message) => message.text().startsWith("Canvas2D: Multiple readback operations");
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && !ofScenarios(message) && note(`console: ${message.text()} (${message.location().url})`));
  page.on("pageerror", (error) => note(`error: ${error.stack}`));
  page.on("request", (request) => new URL(request.url()).origin === new URL(base).origin || note(`outside: ${request.url()}`));
  await page.addInitScript(() => {
    addEventListener("securitypolicyviolation", (event) => console.error(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`));
  });
  await prepare?.(page, context);
  await page.goto(`${base}/${path}`);
  return { page, context, wrong };
}

/** The accessibility violations that axe finds, or only violations of `rule` if it is given. */
export async function inaccessible(page, rule = null) {
  await page.evaluate(AXE);
  const options = { resultTypes: ["violations"], ...(rule && { runOnly: [rule] }) };
  const found = await page.evaluate((options) => globalThis.axe.run(document, options), options);
  const serious = found.violations.filter(({ impact }) => ["serious", "critical"].includes(impact));
  return serious.map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map(({ html, failureSummary }) => `${html} ${failureSummary}`).join(" | ")}`);
}

/** One call as an agent makes it, whole. */
export async function call(proxy, { model = "gpt-4.1", session, agent, parent, experiment, user, behave = "ttft=20ms,gap=2ms,tokens=60", stream = true, route = "/openai" } = {}) {
  const headers = { "content-type": "application/json", "x-sim": behave, "x-tokengauge-session": session, "x-tokengauge-agent": agent, "x-tokengauge-parent-agent": parent, "x-tokengauge-experiment": experiment, "x-tokengauge-user": user };
  const sent = Object.fromEntries(Object.entries(headers).filter(([, value]) => value !== undefined));
  const body = JSON.stringify({ model, stream, stream_options: stream ? { include_usage: true } : undefined, messages: [{ role: "user", content: "Tell me of rivers." }] });
  const response = await fetch(`${proxy}${route}/v1/chat/completions`, { method: "POST", headers: sent, body });
  await response.text();
}
