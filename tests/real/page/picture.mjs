// Takes a picture of the page after some minutes of `tokengauge demo`: `node picture.mjs TOKENGAUGE PICTURE.png`.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { launch, open } from "./browser.mjs";

const MINUTES = Number(process.env.TOKENGAUGE_DEMO_MINUTES ?? 4);
const [, , tokengauge, picture] = process.argv;
const demo = spawn(tokengauge, ["demo", "--agents", "14", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"], { stdio: ["ignore", "ignore", "pipe"] });
const lines = createInterface({ input: demo.stderr });
let admin = null;
for await (const line of lines) {
  admin = line.match(/admin on (127\.0\.0\.1:\d+)/)?.[1];
  if (admin) break;
}
demo.stderr.resume();
const browser = await launch();
try {
  const { page, wrong } = await open(browser, `http://${admin}`, { width: 1440, height: 1010 });
  await page.waitForTimeout(MINUTES * 60_000);
  await page.screenshot({ path: picture });
  wrong.forEach((text) => console.error(text));
} finally {
  await browser.close();
  demo.kill("SIGTERM");
  await once(demo, "exit");
}
