// Plays the named scenarios in order, or all of them, against running proxies: `node run.mjs SETTINGS.json RESULTS.json
// [SCENARIO…]`. `node run.mjs --list` prints their names.
import fs from "node:fs";
import { launch } from "./browser.mjs";
import { scenarios } from "./scenarios.mjs";

const [, , settings, results, ...chosen] = process.argv;
if (settings === "--list") {
  console.log(Object.keys(scenarios).join("\n"));
  process.exit();
}
const world = JSON.parse(fs.readFileSync(settings, "utf8"));
world.browser = await launch();
const told = {};

/** What the pages of a scenario that failed show. */
async function shown(browser) {
  const pages = browser.contexts().flatMap((context) => context.pages());
  const texts = pages.map(async (page) => `${page.url()}\n${(await page.locator("main").innerText({ timeout: 1000 }).catch(String)).slice(0, 1500)}`);
  return (await Promise.all(texts)).join("\n\n");
}

for (const name of chosen.length > 0 ? chosen : Object.keys(scenarios)) {
  const begin = Date.now();
  try {
    await scenarios[name](world);
    told[name] = { seconds: (Date.now() - begin) / 1000, problem: null };
  } catch (error) {
    told[name] = { seconds: (Date.now() - begin) / 1000, problem: `${error.stack}\n${await shown(world.browser)}` };
  }
  for (const context of world.browser.contexts()) await context.close();
}
await world.browser.close();
fs.writeFileSync(results, JSON.stringify(told, null, 1));
