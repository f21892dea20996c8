// The dashboard as people use it. Run by dashboard.sh.

import { spawn } from "node:child_process";
import { delimiter, dirname, join } from "node:path";
import { HtmlValidate } from "html-validate";
import { check, end, essential, open, options, record, signIn, step, until } from "../lib/browser.mjs";
import { adaptationMistakes, mistakes } from "../lib/pages.mjs";

const { out, link, site, port, folder } = options();
const { browser, context } = await open(out);
const page = await context.newPage();
const seen = record(page);
const shot = (name, of = page) => of.screenshot({ path: join(out, `${name}.png`), fullPage: true });
const api = (method, path, body) =>
  fetch(`${site}/api/v1${path}`, {
    method,
    headers: { authorization: `Bearer ${process.env.REAL_USER_TOKEN}`, ...(body && { "content-type": "application/json" }) },
    body: body && JSON.stringify(body),
  });

await signIn(page, link);
await essential("who has nothing is led to the first workspace in one step", page, out, async () => {
  await page.goto(site);
  await page.getByText("No workspaces yet.").waitFor();
  await page.getByRole("link", { name: "Make the first one" }).click();
  await page.waitForURL(`${site}/create`);
});

let machine;
await essential("a machine is connected by the command that is copied", page, out, async () => {
  await page.locator("#machine-name").fill("laptop");
  await page.getByRole("button", { name: "Get the command" }).click();
  const command = await page.locator("#command").textContent();
  if (!command.includes("workspace-agent run --gateway http")) return command;
  await shot("connect");
  // As a shell has it, with the program under test in the path.
  const path = [dirname(process.env.REAL_AGENT), process.env.PATH].join(delimiter);
  machine = spawn("/bin/sh", ["-c", command], { cwd: folder, env: { ...process.env, PATH: path, NO_COLOR: "1" }, stdio: "inherit", detached: true });
  await page.waitForURL(`${site}/workspaces/laptop`, { timeout: 20_000 });
});
await step("its page shows what listens", page, out, async () => {
  await page.reload();
  const row = page.getByRole("row", { name: new RegExp(`port ${port}`) });
  await row.waitFor();
  if (!(await row.textContent()).includes("you alone")) return await row.textContent();
});
await shot("workspace");
const ADAPTS = "in colours of the system nothing is lost, and nothing moves that is not to";
await step(`a workspace that is ready: ${ADAPTS}`, page, out, () => adaptationMistakes(page, { stops: 12, shot: () => shot("ready-forced") }));
await step("a port is shared and revoked in place", page, out, async () => {
  await page.getByText("Share a port").click();
  await page.getByLabel("Port", { exact: true }).fill(port);
  await page.getByLabel("Name of the user or group").fill("ann");
  await page.getByLabel("For how many hours").fill("8");
  await page.getByRole("button", { name: "Share", exact: true }).click();
  await page.getByText("the user ann until").waitFor();
  const { shares } = await (await api("GET", "/workspaces/laptop/shares")).json();
  if (shares.length !== 1 || shares[0].audience !== "user:ann" || !shares[0].expires_at) return JSON.stringify(shares);
  await shot("shared");
  await page.getByRole("button", { name: /^Revoke/ }).click();
  await page.getByText("you alone").first().waitFor();
  const left = await (await api("GET", "/workspaces/laptop/shares")).json();
  if (left.shares.length) return JSON.stringify(left);
});
await step("what is open is seen, and ended by its owner", page, out, async () => {
  const socket = await page.context().newPage();
  await socket.goto(`http://${port}-laptop.localhost:${new URL(site).port}/`);
  await socket.evaluate(() => {
    const open = new WebSocket(`ws://${location.host}/`);
    window.ended = new Promise((resolve) => open.addEventListener("close", () => resolve(true)));
    return new Promise((resolve) => open.addEventListener("open", resolve));
  });
  await page.goto(`${site}/workspaces/laptop`);
  const row = page.getByRole("row", { name: new RegExp(`dev ${port}`) });
  await row.getByRole("button").click();
  const ended = await Promise.race([socket.evaluate(() => window.ended), new Promise((resolve) => setTimeout(resolve, 6_000, false))]);
  if (!ended) return "it is still open";
  await page.waitForURL(`${site}/workspaces/laptop`);
  await socket.close();
});
await step("a form with a mistake says what is wrong, and changes nothing", page, out, async () => {
  await page.getByText("Share a port").click();
  await page.getByLabel("Port", { exact: true }).fill("60022");
  await page.getByLabel("With", { exact: true }).selectOption("public");
  await page.getByRole("button", { name: "Share", exact: true }).click();
  await page.getByRole("alert").getByText("SSH server").waitFor();
});
await step("it is given a name that people read, and the address stays", page, out, async () => {
  await page.goto(`${site}/workspaces/laptop`);
  await page.getByLabel("Display name").fill('My <b>laptop</b> & "co"');
  await page.getByRole("button", { name: "Save the name" }).click();
  await page.getByRole("heading", { level: 1, name: 'My <b>laptop</b> & "co"' }).waitFor();
  if (!page.url().endsWith("/workspaces/laptop")) return page.url();
});

await essential("a devfile is checked while it is typed, at its lines", page, out, async () => {
  await page.goto(`${site}/create`);
  await page.locator("#cluster-name").fill("shop");
  await page.locator("#cluster-devfile").fill("schemaVersion: 2.2.0\ncomponents:\n  - name: main\n    attributes: {gateway/inject-editor: true}\n    container: {imag: x}\n");
  await page.locator("#cluster-found a[data-line]").first().waitFor({ timeout: 10_000 });
  await page.locator("#cluster-found a[data-line]").first().click();
  const chosen = await page.locator("#cluster-devfile").evaluate((area) => area.value.slice(area.selectionStart, area.selectionEnd));
  if (!chosen.includes("imag: x")) return `line ${chosen}`;
});
await shot("devfile");
await step("and is made once it is right", page, out, async () => {
  await page.locator("#cluster-devfile").fill("schemaVersion: 2.2.0\ncomponents:\n  - name: main\n    attributes: {gateway/inject-editor: true}\n    container: {image: localhost/dev:1}\n");
  await until("that nothing is found", 10, async () => (await page.locator("#cluster-found .mistake").count()) === 0);
  await page.locator("#cluster").getByRole("button", { name: "Create it" }).click();
  await page.waitForURL(`${site}/workspaces/shop?follow=1*`);
  await page.getByText("Step 1 of").waitFor();
});
await shot("starting");

const list = await context.newPage();
await list.goto(site);
await step("the list has trouble first, then what is used, with words and glyphs", list, out, async () => {
  const states = await list.locator("#own .state").allInnerTexts();
  if (states.join() !== "● ready,◐ starting" && states.join() !== "◐ starting,● ready") return states.join();
});
await step(`the list: ${ADAPTS}`, list, out, () => adaptationMistakes(list, { stops: 20, shot: () => shot("list-forced", list) }));
await step("what happens shows without a reload", list, out, async () => {
  await api("PATCH", "/workspaces/shop", { desired_state: "Stopped" });
  await list.locator('[data-name="shop"].stopped').waitFor({ timeout: 10_000 });
  process.kill(-machine.pid, "SIGSTOP");
  process.kill(-machine.pid, "SIGKILL");
  await list.locator('[data-name="laptop"].stopped').waitFor({ timeout: 40_000 });
});
await step("search and filters are in the address", list, out, async () => {
  await list.getByLabel("Search workspaces").fill("co");
  await list.keyboard.press("Enter");
  await list.waitForURL(`${site}/?q=co`);
  if ((await list.locator("#own li").count()) !== 1) return "the search finds something else";
  await list.goto(`${site}/?state=ready`);
  await list.getByText("None of your workspaces matches.").waitFor();
});
await shot("list", list);
await step("a pin puts one first", list, out, async () => {
  await list.goto(site);
  await list.getByRole("button", { name: "Pin shop" }).click();
  await list.getByRole("button", { name: "Unpin shop" }).waitFor();
  const first = await list.locator("#own li").first().getAttribute("data-name");
  if (first !== "shop") return first;
});

await step("a template's form says what is wrong at its field, and makes a workspace once it is right", page, out, async () => {
  await page.goto(`${site}/create`);
  await page.getByRole("link", { name: "Node service" }).click();
  await page.waitForURL(`${site}/create?agent=unique&template=node#template`);
  const form = page.locator("#template");
  await form.getByLabel("Name (required)").fill("prepared");
  await form.getByLabel("Team").fill("<b>Team 1</b>");
  await form.getByLabel("Version of Node.js").selectOption("22");
  await form.getByRole("button", { name: "Create it" }).click();
  const field = form.getByLabel("Team");
  await page.locator("#parameter-team-mistake").waitFor();
  if ((await field.inputValue()) !== "<b>Team 1</b>") return "what was typed is lost";
  if ((await field.getAttribute("aria-invalid")) !== "true" || !(await field.getAttribute("aria-describedby")).includes("parameter-team-mistake")) return "the field does not say it";
  await shot("template-mistake");
  const violations = await mistakes(page);
  if (violations) return violations;
  await field.fill("blue");
  await form.getByRole("button", { name: "Create it" }).click();
  await page.waitForURL(`${site}/workspaces/prepared?follow=1*`);
  await page.getByRole("heading", { name: "Template node" }).waitFor();
  const values = await page.locator('section[aria-labelledby="template"] dd').allInnerTexts();
  if (!values.includes("blue") || !values.includes("22")) return values.join();
  const made = await (await api("GET", "/workspaces/prepared")).json();
  if (made.template !== "node" || made.template_parameters.team !== "blue") return JSON.stringify(made.template_parameters);
});

// Every page, in both schemes, wide and narrow. A program asks to be signed in, so that there is something to confirm.
const { verification_uri_complete: confirm } = await (await api("POST", "/device", { machine: "ann@laptop" })).json();
const PAGES = {
  home: "/", create: "/create", template: "/create?agent=unique&template=node", workspace: "/workspaces/shop", machine: "/workspaces/laptop", me: "/me", help: "/help", operator: "/operator",
  "operator-workspaces": "/operator/workspaces", "operator-users": "/operator/users", "operator-audit": "/operator/audit", "operator-refusals": "/operator/refusals",
  "operator-configuration": "/operator/configuration", "operator-agents": "/operator/agents",
  device: "/.gateway/device", confirm, "signed-in": "/.gateway/signed-out", "no-page": "/none", absent: `http://${port}-laptop.localhost:${new URL(site).port}/`,
};
const validate = new HtmlValidate({
  extends: ["html-validate:recommended"],
  rules: { "doctype-style": "off", "void-style": "off", "no-trailing-whitespace": "off", "long-title": "off", "no-inline-style": "error", "meta-refresh": "off", "require-sri": "off", "no-implicit-button-type": "off" },
});
for (const [name, path] of Object.entries(PAGES)) {
  const address = path.startsWith("http") ? path : site + path;
  await step(`${name}: no violation of axe, in both schemes, wide and narrow`, page, out, () =>
    mistakes(page, { each: () => page.goto(address, { waitUntil: "load" }), shot: (form) => shot(`${name}-${form}`) }));
  await step(`${name}: ${ADAPTS}`, page, out, () => adaptationMistakes(page, { stops: 3, shot: () => shot(`${name}-forced`) }));
  await step(`${name}: its HTML is valid`, page, out, async () => {
    const source = await (await page.goto(address)).text();
    const report = await validate.validateString(source);
    if (report.valid) return;
    return report.results.flatMap((result) => result.messages).map((one) => `${one.line}:${one.column} ${one.ruleId} ${one.message}`).slice(0, 5).join("; ");
  });
}

await step("by keyboard alone: search, choose, open, go, keys", page, out, async () => {
  await page.goto(site);
  await page.keyboard.press("Tab");
  if ((await page.evaluate(() => document.activeElement.textContent)) !== "Skip to the content") return "the first stop leads to no content";
  await page.keyboard.press("?");
  await page.getByRole("heading", { name: "Keys" }).waitFor();
  await page.keyboard.press("Escape");
  await page.keyboard.press("/");
  if ((await page.evaluate(() => document.activeElement.id)) !== "q") return "no search";
  await page.keyboard.type("laptop");
  await page.keyboard.press("Enter");
  await page.waitForURL(`${site}/?q=laptop`);
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await page.waitForURL(`${site}/workspaces/laptop`);
  await page.keyboard.press("g");
  await page.keyboard.press("c");
  await page.waitForURL(`${site}/create`);
});

// Without JavaScript: everything but liveness.
const plain = await browser.newContext({ javaScriptEnabled: false, storageState: await context.storageState() });
const quiet = await plain.newPage();
await step("without JavaScript: made, stopped, started, shared, deleted", quiet, out, async () => {
  await quiet.goto(`${site}/create`);
  await quiet.locator("#cluster-name").fill("plain");
  await quiet.locator("#cluster").getByRole("button", { name: "Create it" }).click();
  await quiet.getByRole("button", { name: "Stop", exact: true }).click();
  await quiet.getByRole("button", { name: "Start", exact: true }).click();
  await quiet.getByRole("button", { name: "Stop", exact: true }).waitFor();
  await quiet.getByText("Share a port").click();
  await quiet.getByLabel("Port", { exact: true }).fill("3000");
  await quiet.getByLabel("With", { exact: true }).selectOption("signed-in");
  await quiet.getByRole("button", { name: "Share", exact: true }).click();
  await quiet.getByText("every signed-in user").first().waitFor();
  await quiet.locator("#confirm").fill("another");
  await quiet.getByRole("button", { name: "Delete it with its storage" }).click();
  await quiet.getByRole("alert").getByText("Type plain to delete it").waitFor();
  await quiet.locator("#confirm").fill("plain");
  await quiet.getByRole("button", { name: "Delete it with its storage" }).click();
  await quiet.getByText("It is being deleted").first().waitFor();
  const { state } = await (await api("GET", "/workspaces/plain")).json();
  if (state.desired !== "Terminated") return JSON.stringify(state);
});
await step("a token is made, shown once, and revoked", quiet, out, async () => {
  await quiet.goto(`${site}/me`);
  await quiet.getByText("Make a token for programs").click();
  await quiet.getByLabel("What it is for").fill("<i>ci</i>");
  await quiet.getByRole("button", { name: "Make it" }).click();
  const token = (await quiet.locator(".notice code").textContent()).trim();
  const asks = () => fetch(`${site}/api/v1/whoami`, { headers: { authorization: `Bearer ${token}` } });
  if ((await asks()).status !== 200) return "it is good for nothing";
  await quiet.goto(`${site}/me`);
  if ((await quiet.textContent("body")).includes(token)) return "it is shown again";
  await quiet.getByRole("row", { name: /<i>ci<\/i>/ }).getByRole("button").click();
  await quiet.waitForURL(`${site}/me`);
  if ((await asks()).status !== 401) return "it is still good";
});
await step("one that runs elsewhere is deleted", quiet, out, async () => {
  await quiet.goto(`${site}/workspaces/laptop`);
  await quiet.getByRole("button", { name: "Delete laptop" }).click();
  await quiet.waitForURL(`${site}/`);
  if ((await api("GET", "/workspaces/laptop")).status !== 404) return "it is there";
});
await step("and the browser signs out", quiet, out, async () => {
  await quiet.goto(site);
  await quiet.getByRole("button", { name: "Sign out" }).first().click();
  await quiet.getByRole("heading", { name: /signed out/ }).waitFor();
});

// What is expected in the console are the statuses of pages that are failures.
const unexplained = seen.errors.filter((message) => !/status of (404|422|503)/.test(message));
check("no error in the browser", unexplained.length === 0, unexplained.join("; "));
await browser.close();
end();
