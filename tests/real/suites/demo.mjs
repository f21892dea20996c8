// Opens the link of `gateway demo` and uses the four cards of the sample app. Run by demo.sh, which ends the demo while this
// page is still open.

import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { check, end, essential, fail, ok, open, options, record, save, step, until } from "../lib/browser.mjs";

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
await context.newPage().then(async (narrow) => {
  await narrow.setViewportSize({ width: 390, height: 844 });
  await narrow.goto(page.url(), { waitUntil: "domcontentloaded" });
  await narrow.waitForTimeout(1_500);
  const wider = await narrow.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  check("the page fits a phone", wider <= 0, `${wider} px too wide`);
  await narrow.screenshot({ path: join(out, "phone.png"), fullPage: true });
  await narrow.close();
});
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
