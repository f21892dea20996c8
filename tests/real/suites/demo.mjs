// Opens the link of `gateway demo` and uses the four cards of the sample app. Run by demo.sh, which ends the demo while this
// page is still open.

import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { check, end, essential, fail, ok, open, options, record, save, step, until } from "../lib/browser.mjs";
import { adaptationMistakes, mistakes } from "../lib/pages.mjs";

const { link, out, direct } = options();
const { browser, context } = await open(out);
const page = await context.newPage();
const seen = record(page);
const text = (id) => page.locator(`#${id}`).textContent();
const began = Date.now();

await essential("the link leads to the sample app", page, out, async () => {
  await page.goto(link, { waitUntil: "domcontentloaded" });
  await page.waitForSelector("#ws-state", { timeout: 15_000 });
  if (!direct && !/^\d+-[a-z0-9-]+\.localhost$/.test(new URL(page.url()).hostname)) return `at ${page.url()}`;
  if (page.url().includes("code=")) return `the code is still in ${page.url()}`;
});
await step("the WebSocket card connects and measures round trips", page, out, async () => {
  await page.waitForFunction(() => document.querySelector("#ws-state").dataset.state === "good", null, { timeout: 15_000 });
  await until("a round trip in ms", 10, async () => Number.parseFloat(await text("ws-rtt")) >= 0);
});
console.log(`first round trip shown after ${Date.now() - began} ms: ${await text("ws-rtt")} ms`);
await step("a typed message comes back", page, out, async () => {
  await page.fill("#ws-text", "déjà vu & <b>");
  await page.click("#ws-send");
  await page.waitForFunction(() => document.querySelector("#ws-echo").textContent.includes("déjà vu & <b>"), null, { timeout: 5_000 });
});
await step("the event stream ticks once a second, without gaps", page, out, async () => {
  await page.waitForFunction(() => /^\d+$/.test(document.querySelector("#sse-seq").textContent), null, { timeout: 10_000 });
  const read = () => page.evaluate(() => ({ seq: Number(document.querySelector("#sse-seq").textContent), at: performance.now() / 1000 }));
  const before = await read();
  await page.waitForTimeout(3_300);
  const after = await read();
  const ticks = after.seq - before.seq;
  const took = after.at - before.at;
  if (Math.abs(ticks - took) > 1.5) return `${ticks} ticks in ${took.toFixed(1)} s`;
  if ((await text("sse-gaps")) !== "0") return `${await text("sse-gaps")} gaps`;
});
await step("32 MiB of random bytes arrive with the same checksum", page, out, async () => {
  await page.click("#upload-random");
  await page.waitForFunction(() => ["same", "different", "failed", "unknown"].includes(document.querySelector("#upload-result").dataset.verdict), null, { timeout: 60_000 });
  const verdict = await page.getAttribute("#upload-result", "data-verdict");
  if (verdict !== "same") return `${verdict}: ${await text("upload-result")}`;
});
await step("the request card shows what the app saw, without the gateway's cookies", page, out, async () => {
  await page.waitForFunction(() => document.querySelector("#request-state").dataset.state === "good", null, { timeout: 10_000 });
  const rows = await page.locator("#request-table tr").allInnerTexts();
  if (!rows.some((row) => row.includes("GET"))) return `no method in ${rows.join(" | ")}`;
  const target = await text("request-target");
  if (!target.endsWith("/request?from=the+page&raw=%2F..%2F")) return `target ${target}`;
  const names = await page.locator("#request-headers th").allInnerTexts();
  if (!direct && names.some((name) => /^(cookie|authorization|gateway-authorization)\b/.test(name))) return `the app saw ${names.join(", ")}`;
});
await step("the round trips go on meanwhile, none lost", page, out, async () => {
  if ((await text("ws-lost")) !== "0" || (await text("ws-reconnects")) !== "0") return `lost ${await text("ws-lost")}, reconnects ${await text("ws-reconnects")}`;
});
await page.screenshot({ path: join(out, "cards.png"), fullPage: true });
await step("the sample app: no violation of axe, in both schemes, wide and narrow", page, out, () =>
  mistakes(page, { shot: (form) => page.screenshot({ path: join(out, `app-${form}.png`), fullPage: true }) }));
await step("in colours of the system nothing is lost, and nothing moves that is not to", page, out, () =>
  adaptationMistakes(page, { stops: 6, shot: () => page.screenshot({ path: join(out, "forced.png"), fullPage: true }) }));
// What the gateway itself says at hosts of workspaces, and to who has no session.
async function says(name, address, code, status, within = context) {
  const other = await within.newPage();
  await step(`the page of ${name}: no violation of axe, in both schemes, wide and narrow`, other, out, async () => {
    const answer = await other.goto(address, { waitUntil: "domcontentloaded" });
    if (answer.status() !== status || answer.headers()["gateway-error"] !== code) return `status ${answer.status()}, ${answer.headers()["gateway-error"]}`;
    return mistakes(other, { shot: (form) => other.screenshot({ path: join(out, `${code}-${form}.png`), fullPage: true }) });
  });
  return other;
}
if (!direct) {
  const { port, hostname } = new URL(page.url());
  const site = `http://localhost:${port}`;
  const name = hostname.replace(/^\d+-/, "");
  const closed = await says("a closed port", `http://1-${name}:${port}/`, "port_closed", 502);
  await step("it leads to help and to all workspaces at the public address", closed, out, async () => {
    await closed.getByRole("link", { name: "Help", exact: true }).click();
    await closed.waitForURL(`${site}/help`);
    await closed.goBack();
    await closed.getByRole("link", { name: "Workspace Gateway" }).click();
    await closed.waitForURL(`${site}/`);
  });
  await closed.close();
  // The demo keeps the gateway's own ports out of reach.
  await (await says("a port that is not allowed", `http://${port}-${name}:${port}/`, "port_not_allowed", 403)).close();
  await (await says("no such host", `http://1-none.localhost:${port}/`, "no_such_host", 404)).close();
  const stranger = await browser.newContext({ viewport: { width: 1280, height: 800 } });
  await says("a sign-in that is needed", `${site}/`, "sign_in_required", 401, stranger);
  await stranger.close();
}
if (seen.errors.length === 0) ok("no error in the browser");
else for (const message of new Set(seen.errors)) fail(`error in the browser: ${message}`);
save(out, "record.json", seen);

writeFileSync(join(out, "cards-done"), "");
await until("the demo to be ended", 60, () => existsSync(join(out, "go-on"))).catch(() => {});
if (!direct) {
  await step("the page says that the connection is gone", page, out, () =>
    page.waitForFunction(() => document.querySelector("#ws-state").dataset.state !== "good", null, { timeout: 10_000 }).then(() => {}));
}
await browser.close();
end();
