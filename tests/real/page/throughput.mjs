// Reads the page's throughput figure over time: `node throughput.mjs ADMIN SECONDS` prints a JSON array of tokens per
// second, one per second.
import { launch, open } from "./browser.mjs";

const [, , admin, seconds] = process.argv;
const browser = await launch();
try {
  const { page } = await open(browser, admin);
  const shown = [];
  for (let second = 0; second < Number(seconds); second++) {
    await page.waitForTimeout(1000);
    const text = await page.locator("#tile-now .value").evaluate((value) => value.firstChild?.textContent ?? "");
    shown.push(text);
  }
  console.log(JSON.stringify(shown));
} finally {
  await browser.close();
}
