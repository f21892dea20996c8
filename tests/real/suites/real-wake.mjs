// Wakes of a workspace from its link, one after the other. Run by real-wake.sh.

import { end, essential, open, options, signIn, step, until } from "../lib/browser.mjs";

const { app, name, site, out, link, wakes } = options();
const token = process.env.REAL_USER_TOKEN;
const { browser, context } = await open(out);
const page = await context.newPage();

async function ask(method, body) {
  const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
  const answer = await fetch(`${site}/api/v1/workspaces/${name}`, { method, headers, body: body && JSON.stringify(body) });
  if (!answer.ok) throw new Error(`${method}: ${answer.status}`);
  return answer.json();
}

await signIn(page, link);
// Steps that were marked as under way while the page waited, in their order.
const shown = [];
async function watch(ended) {
  while (!ended()) {
    const text = await page.evaluate(() => document.querySelector("#start .now")?.textContent).catch(() => undefined);
    if (text && shown.at(-1) !== text) shown.push(text);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
await essential(`${wakes} times, the link of the stopped workspace leads to its page after one click`, page, out, async () => {
  for (let wake = 0; wake < wakes; wake += 1) {
    await ask("PATCH", { desired_state: "Stopped" });
    await until("Stopped", 60, async () => (await ask("GET")).state.actual === "Stopped");
    // The node still removes what the pod before copied; one who comes back to a workspace has been away for longer.
    await new Promise((resolve) => setTimeout(resolve, 5_000));
    await page.goto(`${app}/?wake=${wake}`, { waitUntil: "domcontentloaded" });
    await page.click("a.primary");
    const began = Date.now();
    let isThere = false;
    const arrives = page.waitForURL(`${app}/?wake=${wake}`, { timeout: 60_000 }).finally(() => { isThere = true; });
    await Promise.all([arrives, page.click('button[value="start"]'), wake === 0 && watch(() => isThere)]);
    const text = await page.textContent("body");
    if (text.trim() !== "this is shop") return `the page of wake ${wake} is ${text}`;
    console.log(`woken ${began} ${Date.now() - began}`);
  }
});
await step("the page showed the steps of the start as they went on", page, out, async () => {
  const wanted = ["agent and editor are copied into the pod", "its images are on the node, and its containers run"];
  const places = wanted.map((text) => shown.indexOf(text));
  if (places.includes(-1) || places[0] > places[1]) return `it showed ${shown.join("; ")}`;
});
await browser.close();
end();
