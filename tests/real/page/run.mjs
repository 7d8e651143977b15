// Plays the scenarios against running proxies: `node run.mjs SETTINGS.json RESULTS.json [SCENARIO…]`.
import fs from "node:fs";
import { launch } from "./browser.mjs";
import { scenarios } from "./scenarios.mjs";

const [, , settings, results, ...chosen] = process.argv;
const world = JSON.parse(fs.readFileSync(settings, "utf8"));
world.browser = await launch();
const told = {};
for (const [name, play] of Object.entries(scenarios)) {
  if (chosen.length > 0 && !chosen.includes(name)) continue;
  const begin = Date.now();
  try {
    await play(world);
    told[name] = { seconds: (Date.now() - begin) / 1000, problem: null };
  } catch (error) {
    told[name] = { seconds: (Date.now() - begin) / 1000, problem: error.stack };
  }
  for (const context of world.browser.contexts()) await context.close();
}
await world.browser.close();
fs.writeFileSync(results, JSON.stringify(told, null, 1));
