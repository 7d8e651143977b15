// Checks the pages that commands write: `node report.mjs SETTINGS.json RESULTS.json`. The settings name the pages of
// `report` and `bench`, and a folder for pictures.
import fs from "node:fs";
import { pathToFileURL } from "node:url";
import { inaccessible, launch, open } from "./browser.mjs";

// Width of an A4 page within margins of 12 mm, at 96 pixels per inch.
const PAPER = Math.floor(((210 - 24) / 25.4) * 96);

const [, , settings, results] = process.argv;
const { report, bench, shots } = JSON.parse(fs.readFileSync(settings, "utf8"));
const browser = await launch();

function same(what, is, should) {
  if (JSON.stringify(is) !== JSON.stringify(should)) throw new Error(`${what}: ${JSON.stringify(is)}, not ${JSON.stringify(should)}`);
}

async function visit(file, options = {}) {
  const url = pathToFileURL(file);
  const { page, wrong } = await open(browser, "file://", { path: url.pathname.slice(1), ...options });
  return { page, wrong };
}

/** The texts of a column of a table. */
const column = (page, table, number) =>
  page.$$eval(`table >> nth=${table} >> tbody tr`, (rows, number) => rows.map((row) => row.cells[number].firstChild?.textContent ?? ""), number);

/** Cells that reach beyond the width that there is. */
const cut = (page, width) =>
  page.$$eval("th, td", (cells, width) => cells.filter((cell) => cell.getBoundingClientRect().right > width + 0.5).map((cell) => cell.textContent), width);

async function sorting() {
  const { page, wrong } = await visit(report);
  const calls = page.locator("table >> nth=0 >> th >> nth=1");
  const before = (await column(page, 0, 1)).map(Number);
  if (new Set(before).size < 3) throw new Error(`too few rows to sort: ${before}`);
  const down = [...before].sort((one, other) => other - one);
  await calls.locator("button").click();
  same("largest first", (await column(page, 0, 1)).map(Number), down);
  same("said", await calls.getAttribute("aria-sort"), "descending");
  await page.keyboard.press("Enter");
  same("smallest first", (await column(page, 0, 1)).map(Number), down.reverse());
  const name = page.locator("table >> nth=0 >> th >> nth=0");
  await name.locator("button").focus();
  await page.keyboard.press("Space");
  const names = await column(page, 0, 0);
  same("by name", names, [...names].sort((one, other) => one.localeCompare(other, "en", { numeric: true })));
  same("only one column", await page.locator("table >> nth=0 >> [aria-sort]").count(), 1);
  const speeds = page.locator("table >> nth=0 >> th >> nth=4");
  await speeds.locator("button").click();
  const sorted = await column(page, 0, 4);
  const known = sorted.filter((text) => text !== "–").map(Number);
  same("numbers, not texts", known, [...known].sort((one, other) => other - one));
  same("unknown last", sorted.slice(known.length), Array(sorted.length - known.length).fill("–"));
  same("nothing wrong", wrong, []);
}

async function withoutScript() {
  const { page } = await visit(report, { javaScriptEnabled: false });
  same("no buttons", await page.locator("th button").count(), 0);
  if ((await page.locator("tbody tr").count()) < 9) throw new Error("rows are missing");
}

async function paper() {
  for (const [name, file] of Object.entries({ report, bench })) {
    const { page, wrong } = await visit(file, { width: PAPER, height: 1000 });
    const heads = await page.locator("th").count();
    await page.emulateMedia({ media: "print" });
    same(`${name}: cut`, await cut(page, PAPER), []);
    same(`${name}: heads`, await page.locator("th:visible").count(), heads);
    const pdf = await page.pdf({ path: `${shots}/${name}.pdf`, preferCSSPageSize: true });
    const [, width, height] = /MediaBox\s*\[\s*0 0 ([\d.]+) ([\d.]+)/.exec(pdf.toString("latin1"));
    same(`${name}: A4 portrait`, [Math.round(width), Math.round(height)], [595, 842]);
    same(`${name}: nothing wrong`, wrong, []);
  }
}

async function screens() {
  for (const [name, file] of Object.entries({ report, bench })) {
    for (const [kind, options] of Object.entries({
      light: { width: 1100, height: 900 },
      dark: { width: 1440, height: 900, colorScheme: "dark" },
      phone: { width: 390, height: 844 },
    })) {
      const { page, wrong } = await visit(file, options);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      if (wide > 0) throw new Error(`${name}, ${kind}: the page is ${wide} pixels too wide`);
      if (kind === "light") same(`${name}: cut at 1,100 pixels`, await cut(page, 1100), []);
      same(`${name}, ${kind}: axe`, await inaccessible(page), []);
      await page.screenshot({ path: `${shots}/${name}-${kind}.png`, fullPage: true });
      same(`${name}, ${kind}: nothing wrong`, wrong, []);
    }
  }
}

const told = {};
for (const look of [sorting, withoutScript, paper, screens]) {
  try {
    await look();
    told[look.name] = null;
  } catch (error) {
    told[look.name] = error.stack;
  }
  for (const context of browser.contexts()) await context.close();
}
await browser.close();
fs.writeFileSync(results, JSON.stringify(told, null, 1));
