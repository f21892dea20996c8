// Demands on every page for people, of the gateway and of the agent: nothing that axe finds, in both schemes, wide and narrow; nothing that is
// wider than the window; nothing that is lost in colours of the system, or moves where no motion is wanted.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
const HEIGHT = 800;
const WIDTHS = [1280, 320];

// A page that loads itself again meanwhile is examined once more. The policies of the pages allow no script but their own: the
// debugger's way is not bound by that.
async function violationsAt(page) {
  const examine = async () => (await page.evaluate(`${axe};window.axe.run(document, ${JSON.stringify({ runOnly: RULES })})`)).violations;
  try {
    return await examine();
  } catch (error) {
    if (!/context was destroyed|navigation/i.test(error.message)) throw error;
    await page.waitForLoadState();
    return await examine();
  }
}

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
      const violations = await violationsAt(page);
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

// What is lost where the system has colours of its own, and what moves although it is not to, as one text; nothing if nothing is.
// `stops` says how many stops of the keyboard are visited, each of which has to show where it is; `shot` is done with these colours.
export async function adaptationMistakes(page, { stops = 0, shot = async () => {} } = {}) {
  await page.emulateMedia({ forcedColors: "active", reducedMotion: "reduce" });
  // What a script adapts is drawn with the next frame.
  await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(resolve)))));
  const found = await page.evaluate(lostInForcedColours);
  for (let stop = 0; stop < stops; stop += 1) {
    await page.keyboard.press("Tab");
    const lost = await page.evaluate(lostFocus);
    if (lost) found.push(lost);
  }
  found.push(...(await page.evaluate(moving)));
  await shot();
  await page.emulateMedia({ forcedColors: null, reducedMotion: null });
  return found.length ? [...new Set(found)].join("; ") : undefined;
}

// The next three run in the page.

function lostInForcedColours() {
  const found = [];
  const named = (element) => `${element.localName}.${element.className} ${element.textContent.trim().slice(0, 20)}`;
  const shown = (selector) => [...document.querySelectorAll(selector)].filter((element) => element.checkVisibility({ opacityProperty: true }) && element.getClientRects().length > 0);
  const at = (element) => getComputedStyle(element);
  if (!matchMedia("(forced-colors: active)").matches) found.push("no colours are forced");
  const ground = at(document.body).backgroundColor;
  // Buttons and fields have their edges: their grounds are those of the page.
  for (const element of shown("button, .button, select, textarea, input:not([type=checkbox], [type=radio], [type=range], [type=file])")) {
    const { borderTopWidth: width, borderTopStyle: style, borderTopColor: colour } = at(element);
    if (!(Number.parseFloat(width) >= 1) || style === "none" || colour === ground) found.push(`no edge: ${named(element)} (${width} ${style} ${colour})`);
  }
  // What is chosen differs from what is not, by more than colour and weight.
  const marks = (element) => [at(element).borderTopWidth, at(element).borderTopStyle, at(element).outlineStyle, at(element, "::before").content].join();
  const isChosen = (element) => !["false", null].includes(element.getAttribute("aria-current"));
  for (const chosen of shown("[aria-current]").filter(isChosen)) {
    const other = [...chosen.parentElement.children].find((beside) => beside.localName === chosen.localName && !isChosen(beside));
    if (other && marks(other) === marks(chosen)) found.push(`chosen as the others: ${named(chosen)}`);
  }
  for (const primary of shown(".primary")) if (Number.parseFloat(at(primary).borderTopWidth) < 2) found.push(`first choice as the others: ${named(primary)}`);
  // A state is a glyph and a word, not a colour.
  for (const state of shown("p.state")) if (!/^([▲] trouble|◐ starting|● ready|○ stopped)/.test(state.innerText.trim())) found.push(`state ${named(state)}`);
  for (const row of shown(".ws")) if (Number.parseFloat(at(row).borderLeftWidth) < 4 || at(row).borderLeftStyle !== "solid") found.push(`no edge: ${named(row)}`);
  for (const chart of shown(".spark")) if (![...chart.children].some((line) => !["none", ground].includes(at(line).stroke))) found.push("a line is not to be seen");
  return found;
}

function lostFocus() {
  const element = document.activeElement;
  if (element === document.body) return undefined;
  const { outlineStyle: style, outlineWidth: width, outlineColor: colour } = getComputedStyle(element);
  const ground = getComputedStyle(document.body).backgroundColor;
  const isLost = style === "none" || Number.parseFloat(width) < 2 || colour === ground || /, 0\)$/.test(colour);
  return isLost ? `no ring: ${element.localName}.${element.className} ${element.textContent.trim().slice(0, 20)} (${width} ${style} ${colour})` : undefined;
}

function moving() {
  const found = document.getAnimations().map((animation) => `${animation.constructor.name} of ${animation.effect?.target?.localName}`);
  const lasts = (text) => text.split(",").some((one) => Number.parseFloat(one) > 0);
  for (const element of document.querySelectorAll("*")) {
    for (const part of [null, "::before", "::after"]) {
      const style = getComputedStyle(element, part);
      const moves = lasts(style.transitionDuration) || (style.animationName !== "none" && lasts(style.animationDuration)) || style.scrollBehavior === "smooth";
      if (moves) found.push(`moves: ${element.localName}.${element.className}${part ?? ""}`);
    }
  }
  return found;
}
