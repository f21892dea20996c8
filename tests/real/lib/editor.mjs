// Steps in the workbench of VS Code, shared by the suites that drive it.

import { until } from "./checks.mjs";

export const workbench = (page) => page.waitForSelector(".monaco-workbench .explorer-folders-view", { timeout: 90_000 });

export const listed = (page, name, timeout) => page.waitForSelector(`.explorer-folders-view [aria-label*="${name}"]`, { timeout });

// Opens a file of the explorer for good, not as a preview; the place where it is edited.
export async function openFile(page, name, timeout = 30_000) {
  await page.locator(`.explorer-folders-view [aria-label*="${name}"]`).first().dblclick();
  const editor = page.locator(`.editor-instance .monaco-editor[data-uri*="${name}"]`).first();
  await editor.waitFor({ timeout });
  return editor;
}

// Types at the end of a file and saves it.
export async function append(page, name, text) {
  const editor = await openFile(page, name);
  await editor.locator(".view-lines").click();
  await page.keyboard.press("Control+End");
  await page.keyboard.type(text, { delay: 5 });
  await page.keyboard.press("Control+s");
}

// Opens a terminal and runs a command in it, once its shell has drawn a prompt and stands still: keys for a terminal that has no shell yet
// are lost, and the editor starts the shell again if an extension has changed its environment meanwhile.
export async function terminal(page, command) {
  await page.keyboard.press("Control+Backquote");
  // The mark that the editor puts beside a prompt.
  await page.waitForSelector(".terminal-wrapper.active .terminal-command-decoration", { state: "attached", timeout: 60_000 });
  await still(page.locator(".terminal-wrapper.active .xterm-screen"), 2_000);
  await page.locator(".terminal-wrapper.active .xterm-screen").click();
  await page.keyboard.type(command, { delay: 5 });
  await page.keyboard.press("Enter");
}

// Waits until what an element shows has not changed for so long.
async function still(element, quiet) {
  let [shown, since] = ["", Date.now()];
  for (const began = Date.now(); Date.now() - since < quiet; ) {
    if (Date.now() - began > 60_000) throw new Error("it does not stand still");
    await element.page().waitForTimeout(250);
    const now = (await element.screenshot()).toString("base64");
    if (now !== shown) [shown, since] = [now, Date.now()];
  }
}

// The text that the editor of a file shows.
export async function shown(page, name, text) {
  await until("the text in the editor", 30, async () =>
    (await page.locator(`.monaco-editor[data-uri*="${name}"] .view-lines`).first().innerText()).replaceAll("\u00a0", " ").includes(text));
}
