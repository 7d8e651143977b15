// Prints the page's tables of sessions and recent calls: `node oracle.mjs ADMIN`. The output is JSON with an array of
// rows for each table; a row maps column names to cell texts.
import { launch, open } from "./browser.mjs";

const [, , admin] = process.argv;

async function rows(page, host) {
  return page.locator(host).evaluate((host) => {
    const names = [...host.querySelectorAll("thead th")].map((cell) => cell.textContent);
    const cells = (row) => [...row.children].map((cell) => cell.querySelector("a[title]")?.title ?? cell.textContent);
    return [...host.querySelectorAll("tbody tr")].map((row) => Object.fromEntries(cells(row).map((text, place) => [names[place], text])));
  });
}

const browser = await launch();
try {
  const { page, wrong } = await open(browser, admin, { path: "sessions" });
  await page.locator("#sessions .pager select").selectOption("250");
  await page.waitForFunction(() => document.querySelectorAll("#sessions tbody tr").length > 50);
  const sessions = await rows(page, "#sessions");
  const more = await page.locator("#sessions .pager button", { hasText: "Older" }).isEnabled();
  await page.goto(`${admin}/`);
  await page.waitForFunction(() => document.querySelectorAll("#last-calls tbody tr").length > 20);
  const calls = await rows(page, "#last-calls");
  console.log(JSON.stringify({ sessions, more, calls, wrong }));
} finally {
  await browser.close();
}
