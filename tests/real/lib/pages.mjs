// What every page for people has to hold, whoever makes it: nothing that axe finds, in both schemes, wide and narrow; and nothing that
// is wider than the window.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
const HEIGHT = 800;
const WIDTHS = [1280, 320];

// What is found at the page as it stands, as one text; nothing if nothing is. `each` is done before each of the four forms is examined,
// `shot` after it with the form's name. The page is as wide as before afterwards.
export async function mistakes(page, { each = async () => {}, shot = async () => {} } = {}) {
  const found = [];
  const size = page.viewportSize();
  for (const colorScheme of ["light", "dark"]) {
    for (const width of WIDTHS) {
      const form = `${colorScheme}-${width}`;
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize({ width, height: HEIGHT });
      await each();
      // The policies of the pages allow no script but their own: the debugger's way is not bound by that.
      await page.evaluate(axe);
      const { violations } = await page.evaluate((values) => window.axe.run(document, { runOnly: values }), RULES);
      found.push(...violations.map((one) => `${form} ${one.id}: ${one.nodes.map((node) => node.target.join(" ")).slice(0, 3).join(", ")}`));
      const wider = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      if (wider > 0) found.push(`${form} is ${wider} px too wide`);
      await shot(form);
    }
  }
  await page.emulateMedia({ colorScheme: null });
  await page.setViewportSize(size);
  return found.length ? found.join("; ") : undefined;
}
