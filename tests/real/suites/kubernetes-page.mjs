// The page of a workspace in a real Chromium, with a real cluster behind it: a stopped one is offered to be started, its start is
// followed without anybody pressing anything, and it opens; one that cannot start says why while one looks. Run by kubernetes-page.sh.
//
// Nodes and pods are played, so the agent that a pod would run is started here, once the cluster says that the pod runs.

import { spawn } from "node:child_process";
import { join } from "node:path";
import { check, end, essential, open, options, record, save, signIn, step, until } from "../lib/browser.mjs";

const { out, link, site, app, broken, agent, gateway, token } = options();
const { browser, context } = await open(out);
const page = await context.newPage();
const seen = record(page);
const streams = [];
page.on("request", (request) => {
  if (request.url().includes("/events")) streams.push(request.url());
});
const shot = (name) => page.screenshot({ path: join(out, `page-${name}.png`) });
const text = (id) => page.locator(`#${id}`).textContent();
const states = [];

// What the page showed, in order, also between two looks; kept here because the page is loaded anew now and then.
await page.exposeBinding("noteState", (_, state) => {
  if (states.at(-1) !== state) states.push(state);
});
await page.addInitScript(() => {
  addEventListener("DOMContentLoaded", () => {
    if (!document.getElementById("state")) return;
    // The page puts fresh parts in the place of old ones.
    const note = () => window.noteState(document.getElementById("state")?.textContent ?? "");
    note();
    new MutationObserver(note).observe(document.body, { childList: true, characterData: true, subtree: true });
  });
});

await signIn(page, link);
const wanted = `${app}/some/path?x=1`;
await essential("a stopped workspace says so, with a link to start it", page, out, async () => {
  const response = await page.goto(wanted, { waitUntil: "domcontentloaded" });
  if (response.status() !== 503 || (await response.headerValue("gateway-error")) !== "workspace_stopped") {
    return `status ${response.status()}, ${await response.headerValue("gateway-error")}`;
  }
  await page.getByRole("link", { name: "Start it" }).waitFor();
});
await shot("stopped");
await essential("the link leads to its page, which starts nothing by being opened", page, out, async () => {
  await page.getByRole("link", { name: "Start it" }).click();
  await page.waitForSelector("#workspace");
  if (!page.url().startsWith(`${site}/workspaces/`)) return `at ${page.url()}`;
  await page.waitForTimeout(1500);
  if ((await text("state")) !== "Stopped") return `it is ${await text("state")}`;
});
await shot("offered");
states.length = 0;
await essential("a click starts it", page, out, async () => {
  await page.getByRole("button", { name: "Start", exact: true }).click();
  await until("that it is under way", 15, async () => ["CreationRequested", "Starting", "Running"].includes(await text("state").catch(() => "")));
});
await shot("starting");
check("the page listens to the gateway", streams.length >= 1, JSON.stringify(streams));
const before = seen.navigations;
await step("the page follows to Running by itself", page, out, async () => {
  await until("Running", 60, async () => (await text("state").catch(() => "")) === "Running");
  if (!states.includes("Starting")) return `it showed ${states.join(", ")}`;
});
await step("and waits for the agent", page, out, async () => {
  await page.getByText("Its agent is about to connect.").waitFor();
  if (page.url().startsWith(app)) return "it left already";
});
await shot("running");
const child = spawn(agent, ["run", "--gateway", gateway, "--token-file", token], { stdio: "ignore", env: { ...process.env, NO_COLOR: "1" } });
await step("once the agent is there, it opens what was asked for first", page, out, async () => {
  await page.waitForURL(wanted, { timeout: 30_000 });
  const shown = await page.locator("body").textContent();
  if (shown.trim() !== "page-app") return `it shows ${shown}`;
});
await shot("opened");
check("with a few page loads, not by loading again and again", seen.navigations - before <= 4, `${seen.navigations - before}`);
console.log(`the page showed ${states.join(", ")}`);

await step("one that cannot start says why, while one looks", page, out, async () => {
  await page.goto(`${site}/workspaces/${broken}`, { waitUntil: "domcontentloaded" });
  await page.waitForSelector("#workspace");
  await until("the reason", 40, async () => /pull/i.test((await text("reason").catch(() => "")) ?? ""));
});
await shot("broken");
await step("and can be stopped there", page, out, async () => {
  await page.getByRole("button", { name: "Stop", exact: true }).click();
  await until("Stopped", 60, async () => (await text("state").catch(() => "")) === "Stopped");
  await page.getByRole("button", { name: "Start", exact: true }).waitFor({ timeout: 10_000 });
});
await shot("stopped-again");

// Chromium writes the status of the page that says that the workspace is stopped to its console.
const unexplained = seen.errors.filter((message) => !/status of 503/.test(message));
check("no error in the browser", unexplained.length === 0, unexplained.join("; "));
save(out, "record.json", { ...seen, states, streams });
child.kill("SIGTERM");
await browser.close();
end();
