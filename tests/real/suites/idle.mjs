// Use of a workspace in Chromium, then its stop and its wake. Run by idle.sh.

import { spawn } from "node:child_process";
import { get } from "node:http";
import { join } from "node:path";
import { end, essential, open, options, signIn, step, until } from "../lib/browser.mjs";
import { mistakes } from "../lib/pages.mjs";

const { app, name, terminal, site, out, link } = options();
const token = process.env.REAL_USER_TOKEN;
const { browser, context } = await open(out);
const first = await context.newPage();

async function ask(method, path, body) {
  const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
  const answer = await fetch(`${site}/api/v1/workspaces/${name}${path}`, { method, headers, body: body && JSON.stringify(body) });
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status}`);
  return answer.json();
}
const idle = async () => (await ask("GET", "")).idle;
const counts = (kind, after = "") => until(`${kind} counts`, 8, async () => {
  const { last_activity: last } = await idle();
  return last?.kind === kind && last.at > after && last.by === "dev" && last;
});
const wait = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));
const shows = (page) => until("a shell", 20, async () => (await page.evaluate(() => globalThis.screenText?.() ?? "")).trim().length > 0);

await signIn(first, link);
await essential("a visit counts", first, out, async () => {
  await first.goto(`${app}/`, { waitUntil: "domcontentloaded" });
  await counts("visit");
});
await step("data of a WebSocket counts", first, out, async () => {
  // What follows within the second of the visit is not told apart from it.
  await wait(1.5);
  await first.click("#say");
  await counts("websocket");
});
const shell = await context.newPage();
await step("keys in the terminal count", shell, out, async () => {
  await shell.goto(`${terminal}/`, { waitUntil: "domcontentloaded" });
  await shows(shell);
  await wait(1.5);
  await shell.locator("#screen").click();
  await shell.keyboard.type("while sleep 0.2; do echo output; done\n");
  await counts("terminal");
});
await step("a hidden page that polls, its event stream and WebSocket, and a terminal's output do not", shell, out, async () => {
  await first.bringToFront();
  await shell.bringToFront();
  await wait(2.5);
  const before = (await idle()).last_activity;
  const polled = Number(await first.textContent("#polled"));
  await wait(5);
  const after = (await idle()).last_activity;
  if (Number(await first.textContent("#polled")) <= polled + 3) return "the page does not poll";
  if (after.at !== before.at) return `${JSON.stringify(after)} counted`;
});
await step("a page of the dashboard does not", shell, out, async () => {
  const before = (await idle()).last_activity;
  const home = await context.newPage();
  await home.goto(`${site}/`);
  await home.goto(`${site}/workspaces/${name}`);
  await wait(2.5);
  const told = await home.textContent("body");
  if (!told.includes("last activity") || !told.includes("terminal input by you")) return `the page says ${told}`;
  if ((await idle()).last_activity.at !== before.at) return "it counted";
  await home.close();
});

await step("a busy command counts, and ends with its own status", first, out, async () => {
  const busy = spawn(process.env.REAL_AGENT, ["busy", "--", "sh", "-c", "sleep 4; exit 7"], { stdio: "inherit" });
  const ended = new Promise((resolve) => busy.on("exit", resolve));
  await until("busy counts", 8, async () => (await idle()).last_activity.kind === "busy");
  const status = await ended;
  if (status !== 7) return `status ${status}`;
});

// From here on nothing but the pages themselves does anything.
const home = await context.newPage();
await home.goto(`${site}/`);
await ask("PATCH", "", { idle_minutes: 0.3 });
await step("the terminal and the dashboard warn", shell, out, async () => {
  // The page asks seldom while the stop is far away.
  await shell.reload();
  await shell.bringToFront();
  await shell.waitForSelector("#idle:not([hidden])", { timeout: 30_000 });
  await home.waitForSelector(".idle.warn", { timeout: 15_000, state: "attached" });
});
let reason;
await essential("it is stopped, and says since when and by what", home, out, async () => {
  await home.bringToFront();
  await until("Stopped", 40, async () => (await ask("GET", "")).state.actual === "Stopped");
  reason = (await ask("GET", "")).state.reason;
  if (!/^stopped: idle since .*Z \(.+\)$/.test(reason)) return `the reason is ${reason}`;
});
await shell.close();
await step("programs are told at once, with when to come again", home, out, async () => {
  const { host, port } = new URL(app);
  const headers = { host, "gateway-authorization": `Bearer ${token}`, accept: "application/json" };
  const answer = await new Promise((resolve, reject) => get({ host: "127.0.0.1", port, path: "/data", headers }, resolve).on("error", reject));
  answer.resume();
  const told = [answer.statusCode, answer.headers["gateway-error"], answer.headers["retry-after"]];
  if (told.join() !== "503,workspace_stopped,10") return told.join();
});
await essential("its link asks, and one click leads to the page that was asked for", home, out, async () => {
  await ask("PATCH", "", { idle_minutes: 600 });
  const woken = await context.newPage();
  await woken.goto(`${app}/some/page?x=1`, { waitUntil: "domcontentloaded" });
  await woken.getByRole("link", { name: "Start it" }).waitFor();
  const found = await mistakes(woken, { shot: (form) => woken.screenshot({ path: join(out, `stopped-${form}.png`), fullPage: true }) });
  if (found) return found;
  await woken.click("a.primary");
  await woken.getByRole("button", { name: "Start", exact: true }).waitFor();
  const wake = await mistakes(woken, { shot: (form) => woken.screenshot({ path: join(out, `wake-${form}.png`), fullPage: true }) });
  if (wake) return wake;
  if (!(await woken.textContent("body")).includes(reason)) return "the page does not say why it is stopped";
  if ((await ask("GET", "")).state.desired !== "Stopped") return "a link alone has started it";
  const began = Date.now();
  await Promise.all([woken.waitForURL(`${app}/some/page?x=1`, { timeout: 60_000 }), woken.click('button[value="start"]')]);
  await woken.waitForSelector("#polled");
  console.log(`note from the click to the page ${Date.now() - began} ms`);
});
await step("a button keeps it for an hour", home, out, async () => {
  await home.goto(`${site}/workspaces/${name}`);
  await home.click('button[value="keep"]');
  const kept = await until("kept", 5, async () => (await idle()).kept_until);
  const minutes = (new Date(kept) - Date.now()) / 60_000;
  if (minutes < 58 || minutes > 60) return `it is kept for ${minutes} minutes`;
});
await browser.close();
end();
