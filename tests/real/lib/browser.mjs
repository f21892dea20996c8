// What the browser suites share: one headless Chromium, and a record of everything the page complained about.
// REAL_CONSOLE=1 also adds everything that the page prints to the log of the helper.

import { chromium } from "playwright-core";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { check, fail, ok } from "./checks.mjs";

export * from "./checks.mjs";

// The browser may not look for updates and the like: this is a test of the page, and the network may be closed.
const ARGUMENTS = [
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--no-default-browser-check",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--disable-domain-reliability",
  "--disable-features=OptimizationHints,MediaRouter,Translate,AutofillServerCommunication",
  "--no-proxy-server",
];

// Runs a step; an exception in it is one failed check, with a screenshot of what the page showed.
export async function step(text, page, out, action) {
  try {
    const problem = await action();
    if (typeof problem === "string") throw new Error(problem);
    ok(text);
    return true;
  } catch (error) {
    fail(`${text}: ${error.message}`);
    await page.screenshot({ path: join(out, `failed-${text.replace(/[^a-z0-9]+/gi, "-").slice(0, 60)}.png`) }).catch(() => {});
    return false;
  }
}

// A step without which the others would only repeat its failure: ends the run if it fails.
export async function essential(text, page, out, action) {
  if (await step(text, page, out, action)) return;
  await page.context().browser().close();
  process.exit(1);
}

export async function open(out, more = []) {
  mkdirSync(out, { recursive: true });
  const browser = await chromium.launch({
    executablePath: process.env.REAL_CHROMIUM ?? "/usr/bin/chromium",
    headless: true,
    // As root, Chromium's sandbox cannot start; it protects from the page, which is ours here.
    chromiumSandbox: process.getuid() !== 0,
    args: [...ARGUMENTS, ...more],
  });
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
  context.setDefaultTimeout(30_000);
  return { browser, context };
}

// Collects console errors, page errors, failed requests and WebSocket life of a page.
export function record(page) {
  const seen = { errors: [], leaving: [], requests: [], sockets: [], navigations: 0, left: false };
  // What a page says while it is being left is not an error that anybody meets; it is kept apart (see `reload`).
  const complain = (text) => (seen.left ? seen.leaving : seen.errors).push(text);
  page.on("console", (message) => {
    if (message.type() === "error") complain(`console: ${message.text()} (${message.location().url ?? ""})`);
  });
  if (process.env.REAL_CONSOLE) page.on("console", (message) => console.log(`[${message.type()}] ${message.text().slice(0, 1500)}`));
  page.on("pageerror", (error) => complain(`page: ${error.message}`));
  page.on("requestfailed", (request) => seen.requests.push(`${request.failure()?.errorText} ${request.url()}`));
  page.on("framenavigated", (frame) => {
    if (frame !== page.mainFrame()) return;
    seen.navigations += 1;
    seen.left = false;
  });
  page.on("websocket", (socket) => {
    const entry = { url: socket.url(), received: 0, sent: 0, closed: false, error: null };
    seen.sockets.push(entry);
    socket.on("framereceived", () => (entry.received += 1));
    socket.on("framesent", () => (entry.sent += 1));
    socket.on("socketerror", (error) => (entry.error = error));
    socket.on("close", () => (entry.closed = true));
  });
  return seen;
}

export async function reload(page, seen) {
  seen.left = true;
  await page.reload({ waitUntil: "domcontentloaded" });
}

// Signs the browser in through the one-time link of dev mode. Without a link (direct runs) nothing happens.
export async function signIn(page, link) {
  if (!link) return;
  const response = await page.goto(link, { waitUntil: "domcontentloaded" });
  check("the sign-in link signs the browser in", response.ok(), `status ${response.status()} at ${page.url()}`);
  check("the one-time code is gone from the address", !page.url().includes("code="), page.url());
}

// Fills in the pages of the provider (apps/provider.mjs) as `name`.
export async function signInAs(page, name) {
  await page.waitForSelector('input[name="login"]');
  await page.fill('input[name="login"]', name);
  await page.fill('input[name="password"]', "any");
  await page.click('button[type="submit"]');
  await page.waitForSelector('form input[name="prompt"][value="consent"], form button', { state: "attached" });
  await page.click('button[type="submit"]');
}

export function save(out, name, value) {
  writeFileSync(join(out, name), `${JSON.stringify(value, null, 2)}\n`);
}
