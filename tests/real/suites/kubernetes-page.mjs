// The page of a workspace in a real Chromium, with a real cluster behind it: a stopped one is offered to be started, its start is
// followed without anybody pressing anything, and it opens; one that cannot start says why while one looks; one is made, stopped, started
// and ended by what the pages have. Run by kubernetes-page.sh.
//
// Nodes and pods are played, so the agent that a pod would run is started here, once the cluster says that the pod runs.

import { execFileSync, spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { check, end, essential, open, options, record, save, signIn, step, until } from "../lib/browser.mjs";

const { out, link, site, app, port, broken, agent, gateway, token, reconciler, kubectl, kubeconfig } = options();
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
function startAgent(file) {
  const started = spawn(agent, ["run", "--gateway", gateway, "--token-file", file], { stdio: "ignore", env: { ...process.env, NO_COLOR: "1" } });
  process.on("exit", () => started.kill("SIGTERM"));
  return started;
}
const child = startAgent(token);
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

child.kill("SIGTERM");

// --- made, stopped, started and ended by what the pages have --------------------------------------------------------------------

const cluster = (...words) => execFileSync(kubectl, ["--kubeconfig", kubeconfig, "--cache-dir", join(out, "kubectl"), "-n", "ws-made", ...words], { encoding: "utf8" });
// The phase of its pod, as the cluster says; nothing without one.
const phase = () => cluster("get", "pods", "-o", "jsonpath={.items[*].status.phase}");
const DEVFILE = (line) => `schemaVersion: 2.2.0
components:
  - name: main
    attributes: {gateway/inject-editor: true}
    container:
      ${line}
      endpoints: [{name: app, targetPort: ${port}}]
`;
const starts = [];
await page.exposeBinding("noteSteps", (_, steps) => {
  if (steps && starts.at(-1) !== steps) starts.push(steps);
});
await page.addInitScript(() => {
  addEventListener("DOMContentLoaded", () => {
    const note = () => window.noteSteps([...document.querySelectorAll("#start li")].map((row) => `${row.className}: ${row.textContent}`).join(", "));
    note();
    new MutationObserver(note).observe(document.body, { childList: true, subtree: true });
  });
});

await essential("a devfile with a mistake is found at its line while it is typed", page, out, async () => {
  await page.goto(`${site}/create`);
  await page.locator("#cluster-name").fill("made");
  await page.locator("#cluster-devfile").fill(DEVFILE("ima"));
  await page.locator("#cluster-devfile").evaluate((area) => area.setSelectionRange(area.value.indexOf("ima") + 3, area.value.indexOf("ima") + 3));
  await page.locator("#cluster-devfile").pressSequentially("g: example.net/slow:1");
  await page.locator("#cluster-found a[data-line]", { hasText: "imag" }).first().click({ timeout: 10_000 });
  const chosen = await page.locator("#cluster-devfile").evaluate((area) => area.value.slice(area.selectionStart, area.selectionEnd));
  if (chosen.trim() !== "imag: example.net/slow:1") return `${chosen}: ${await page.locator("#cluster-found").innerText()}`;
});
await shot("mistake");
// A cluster's agent that stands still does nothing: what the page says then is what is so.
await essential("once mended it is made, and the page waits for its objects as long as there are none", page, out, async () => {
  await page.locator("#cluster-devfile").fill(DEVFILE("image: example.net/slow:1"));
  await until("that nothing is found", 10, async () => (await page.locator("#cluster-found .mistake").count()) === 0);
  process.kill(Number(reconciler), "SIGSTOP");
  await page.locator("#cluster").getByRole("button", { name: "Create it" }).click();
  await page.waitForURL(`${site}/workspaces/made?follow=1*`);
  await page.getByText("Step 1 of 5, until its objects are in the cluster.").waitFor();
  await page.waitForTimeout(1000);
  const steps = await page.locator("#start").innerText();
  if ((await page.locator("#start .done").count()) !== 0) return steps;
  if (cluster("get", "namespace", "ws-made", "--ignore-not-found", "-o", "name") !== "") return "its namespace is there";
});
await essential("it says what is done once it is done", page, out, async () => {
  process.kill(Number(reconciler), "SIGCONT");
  await page.locator("#start .done", { hasText: "its objects are in the cluster" }).waitFor({ timeout: 20_000 });
  await page.locator("#start .done", { hasText: "its pod has a node" }).waitFor({ timeout: 20_000 });
  const [pod, steps] = [phase(), await page.locator("#start").innerText()];
  // Its pod takes ten seconds to run.
  if (pod !== "Pending") return `its pod is ${pod || "not there"}`;
  if ((await page.locator("#start .now").count()) !== 1 || (await page.locator("#start .done", { hasText: "its agent" }).count()) !== 0) return steps;
  if (!/^◐ starting/.test(await page.locator("#status .state").innerText())) return await page.locator("#status .state").innerText();
});
await shot("made");
let made;
await essential("and is ready once its pod runs and its agent is there", page, out, async () => {
  await page.getByText("Its agent is about to connect.").waitFor({ timeout: 30_000 });
  if (phase() !== "Running") return `its pod is ${phase()}`;
  const file = join(out, "made.token");
  writeFileSync(file, Buffer.from(cluster("get", "secret", "made-file", "-o", "jsonpath={.data.agent-token}"), "base64"), { mode: 0o600 });
  made = startAgent(file);
  await page.locator("#status .state.ready").waitFor();
  if (!/^● ready/.test(await page.locator("#status .state").innerText())) return await page.locator("#status .state").innerText();
});
await shot("ready");
await step("what was shown in between only went on", page, out, () => {
  const done = starts.map((steps) => steps.split("done: ").length - 1);
  if (done.length < 2 || done.some((count, at) => count < (done[at - 1] ?? 0))) return starts.join(" | ");
  console.log(`the page showed ${done.join(", ")} steps done`);
});
await essential("a button stops it, and its pod ends", page, out, async () => {
  await page.getByRole("button", { name: "Stop", exact: true }).click();
  await until("Stopping", 10, async () => /^Stopp/.test(await text("state").catch(() => "")));
  made.kill("SIGTERM");
  await until("Stopped", 30, async () => (await text("state").catch(() => "")) === "Stopped");
  if (phase() !== "") return `its pod is ${phase()}`;
});
await essential("a button starts it again, in a new pod", page, out, async () => {
  await page.getByRole("button", { name: "Start", exact: true }).click();
  await page.locator("#start .done", { hasText: "its objects are in the cluster" }).waitFor({ timeout: 20_000 });
  await until("a pod", 10, () => phase() === "Pending");
});
await step("it is ended by its name and a button, with all that was made", page, out, async () => {
  await page.locator("#confirm").fill("made");
  await page.getByRole("button", { name: "Delete it with its storage" }).click();
  await page.getByText("It is being deleted").first().waitFor();
  await until("Terminated", 40, async () => (await text("state").catch(() => "")) === "Terminated");
  if (cluster("get", "namespace", "ws-made", "--ignore-not-found", "-o", "name") !== "") return "its namespace is there";
  await page.reload();
  await page.getByRole("button", { name: "Forget made" }).click();
  await page.waitForURL(`${site}/`);
  if ((await page.locator('[data-name="made"]').count()) !== 0) return "it is in the list";
});

// Chromium writes the status of the page that says that the workspace is stopped to its console.
const unexplained = seen.errors.filter((message) => !/status of 503/.test(message));
check("no error in the browser", unexplained.length === 0, unexplained.join("; "));
save(out, "record.json", { ...seen, states, streams, starts });
await browser.close();
end();
