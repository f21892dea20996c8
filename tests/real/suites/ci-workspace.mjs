// A person in the editor of a workspace that is a CI job. Run by ci-workspace.sh: `first` opens the project, types into a file and
// uses the terminal; `second` finds all of it after the workspace was stopped and started.

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { end, essential, open, options, record, signIn, step, until } from "../lib/browser.mjs";
import { terminal } from "../lib/editor.mjs";

const { step: which, base, folder, out, link } = options();
const { browser, context } = await open(out);
const page = await context.newPage();
record(page);
const named = (text) => `${which}: ${text}`;
const TYPED = "typed in a CI job";

await signIn(page, link);
await essential(named("the workbench loads with the project"), page, out, async () => {
  await page.goto(`${base}/?folder=${encodeURIComponent(folder)}`, { waitUntil: "domcontentloaded" });
  await page.waitForSelector(".monaco-workbench .explorer-folders-view", { timeout: 120_000 });
  await page.waitForSelector('.explorer-folders-view [aria-label*="notes.txt"]', { timeout: 60_000 });
});

if (which === "first") {
  await step(named("a file takes typing and is saved in the job's folder"), page, out, async () => {
    await page.locator('.explorer-folders-view [aria-label*="notes.txt"]').first().dblclick();
    const editor = page.locator('.editor-instance .monaco-editor[data-uri*="notes.txt"]').first();
    await editor.locator(".view-lines").click();
    await page.keyboard.press("Control+End");
    await page.keyboard.type(TYPED, { delay: 5 });
    await page.keyboard.press("Control+s");
    await until("the typed text on disk", 20, () => readFileSync(join(folder, "notes.txt"), "utf8").includes(TYPED));
  });
  await step(named("a terminal runs commands in the job"), page, out, async () => {
    await terminal(page, 'echo "[$GREETING][$CI_JOB_ID][$WORKSPACE_GATEWAY_RUN]" > proof.txt; rm old.txt');
    await until("proof.txt", 30, () => existsSync(join(folder, "proof.txt")) && !existsSync(join(folder, "old.txt")));
    const proof = readFileSync(join(folder, "proof.txt"), "utf8");
    // The workspace's own variable is there; those of the CI system are not.
    if (proof !== `[${process.env.REAL_SECRET}][][]\n`) return `the terminal says ${proof}`;
  });
} else {
  await step(named("what was typed, made and deleted is as it was left"), page, out, async () => {
    await page.waitForSelector('.explorer-folders-view [aria-label*="proof.txt"]', { timeout: 30_000 });
    await page.locator('.explorer-folders-view [aria-label*="notes.txt"]').first().dblclick();
    await page.waitForSelector('.editor-instance .monaco-editor[data-uri*="notes.txt"]', { timeout: 60_000 });
    await until("the text in the editor", 30, async () =>
      (await page.locator('.monaco-editor[data-uri*="notes.txt"] .view-lines').first().innerText()).replaceAll("\u00a0", " ").includes(TYPED));
    if (existsSync(join(folder, "old.txt"))) return "old.txt came back";
  });
}
await page.screenshot({ path: join(out, `${which}.png`) });
await browser.close();
end();
