// The owner of a failed CI job, behind the link that the job printed: looks around, tries the fix, and ends the job. Run by ci-job.sh.

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { check, end, essential, open, options, record, signIn, step, until } from "../lib/browser.mjs";
import { mistakes } from "../lib/pages.mjs";

const { terminal, choice, project, out, link, signed } = options();
const named = (text) => `${choice}: ${text}`;
const opened = await open(out);
const { browser } = opened;
// The sign-in link works once: whoever comes back is still signed in.
const known = existsSync(signed);
const context = known ? await browser.newContext({ storageState: signed, viewport: { width: 1280, height: 800 } }) : opened.context;
context.setDefaultTimeout(30_000);
const page = await context.newPage();
const seen = record(page);
const screen = () => page.evaluate(() => globalThis.screenText?.() ?? "");
const shows = (text) => until(`${JSON.stringify(text)} on the screen`, 20, async () => (await screen()).includes(text));
const type = async (text) => {
  await page.locator("#screen").click();
  await page.keyboard.type(text);
};

if (!known) await signIn(page, link);
await essential(named("the link opens a terminal in the job"), page, out, async () => {
  await page.goto(terminal, { waitUntil: "domcontentloaded" });
  await until("connected", 30, async () => (await page.getAttribute("#status", "data-kind")) === "connected");
  await type("pwd; echo $CI_SECRET token=${WORKSPACE_GATEWAY_TOKEN:-none}\n");
  await shows("in-the-job token=none");
  await shows(project.slice(-20));
});
await step(named("the page says what failed, and offers both ends"), page, out, async () => {
  const text = await page.textContent("#job-text");
  if (!/make test has failed with status 2/.test(text)) return text;
  for (const id of ["job-continue", "job-fail"]) if (!(await page.isEnabled(`#${id}`))) return `${id} is disabled`;
});
if (choice === "continue") {
  await step(named("the fix is tried in the terminal"), page, out, async () => {
    await type("make test || echo still-$((1+1))\n");
    await shows("still-2");
    await type("echo 42 > answer && make test && touch tried\n");
    await until("a test that passes", 20, () => existsSync(join(project, "tried")));
    if (readFileSync(join(project, "answer"), "utf8") !== "42\n") return "the answer is another";
  });
}
await page.screenshot({ path: join(out, `${choice}.png`) });
if (choice === "fail") {
  await step(named("no violation of axe, in both schemes, wide and narrow"), page, out, () =>
    mistakes(page, { shot: (form) => page.screenshot({ path: join(out, `job-${form}.png`) }) }));
}
await step(named("a click ends the job"), page, out, async () => {
  await page.click(`#job-${choice}`);
  await until("the page says so", 10, async () => /the job is ending|disconnected|lost|again/i.test(`${await page.textContent("#job-text")} ${await page.textContent("#status")}`));
});
check(named("no script of the page failed"), !seen.errors.some((error) => error.startsWith("page:")), seen.errors.join(" | "));
await context.storageState({ path: signed });
await browser.close();
end();
