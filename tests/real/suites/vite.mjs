// A developer's loop with Vite: open the page, edit files, see the page change in place. Run by vite.sh.

import { renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { check, end, essential, fail, ok, open, options, record, save, signIn, step, until } from "../lib/browser.mjs";

// `edits`: a folder on the app's file system in which files are written before they take their place.
const { base, app, out, link, edits: drafts = out } = options();
const { browser, context } = await open(out);
const page = await context.newPage();
await signIn(page, link);
const seen = record(page);
// Nobody saves twice within some milliseconds, and Vite's file watcher takes such a pair for one change.
const pause = () => new Promise((resolve) => setTimeout(resolve, 500));
// As editors save: the watcher sees a file with all of its text. Emptied and then written, it would be two changes, and on a busy
// machine Vite serves the empty file and takes no note of the second one.
const edit = (name, text) => {
  writeFileSync(join(drafts, name), text);
  renameSync(join(drafts, name), join(app, name));
};
const socketHost = new URL(base).host;

await essential("the page loads through the tunnel", page, out, async () => {
  const response = await page.goto(`${base}/`, { waitUntil: "load" });
  if (!response.ok()) return `status ${response.status()}`;
  await page.waitForFunction(() => document.querySelector("#message").textContent === "first version");
});

// Vite's client falls back to the dev server's own port when its first WebSocket fails; here only the tunnel counts.
await step("the hot-reload WebSocket goes through the tunnel", page, out, () =>
  until("a WebSocket with a message", 15, () => seen.sockets.some((s) => new URL(s.url).host === socketHost && s.received > 0 && !s.closed)).then(() => {
    const stray = seen.sockets.filter((s) => new URL(s.url).host !== socketHost);
    return stray.length > 0 ? `a socket went elsewhere: ${stray[0].url}` : undefined;
  }));

await page.evaluate(() => (window.mark = "same page"));
const navigations = seen.navigations;
const edits = [];
for (const version of ["second version", "third version: déjà vu"]) {
  await step(`an edit shows up without a reload (${version})`, page, out, async () => {
    await pause();
    const began = Date.now();
    edit("message.js", `export const message = ${JSON.stringify(version)};\n`);
    await page.waitForFunction((text) => document.querySelector("#message").textContent === text, version, { timeout: 10_000, polling: 20 });
    edits.push(Date.now() - began);
  });
}
await step("an edited style sheet is applied without a reload", page, out, async () => {
  await pause();
  edit("style.css", "#styled { color: rgb(0, 128, 0); }\n");
  await page.waitForFunction(() => getComputedStyle(document.querySelector("#styled")).color === "rgb(0, 128, 0)", null, { timeout: 10_000 });
});
check("the page was never reloaded", seen.navigations === navigations && (await page.evaluate(() => window.mark)) === "same page", `${seen.navigations - navigations} navigations`);

await step("an edit of the page itself reloads it", page, out, async () => {
  await pause();
  edit("index.html", '<!doctype html><link rel="icon" href="data:,"><p id="message"></p><p id="styled"></p><p id="fresh">fresh</p><script type="module" src="/main.js"></script>\n');
  await page.waitForSelector("#fresh", { timeout: 10_000 });
  await page.waitForFunction(() => document.querySelector("#message").textContent.startsWith("third version"));
});

const headers = await page.evaluate(() => fetch("/seen").then((response) => response.json()));
check("the dev server is asked for localhost", /^localhost(:\d+)?$/.test(headers.host), headers.host);
// The app sets no cookie and asks for no credentials, so any that arrive are the gateway's own.
const leaked = ["cookie", "authorization", "gateway-authorization"].filter((name) => name in headers);
check("the gateway's cookies and tokens do not reach the dev server", leaked.length === 0, leaked.map((name) => `${name}: ${headers[name]}`).join(", "));

await page.screenshot({ path: join(out, "page.png") });
save(out, "record.json", { ...seen, edits, headers });
console.log(`edits reached the page after ${edits.join(", ")} ms`);
if (seen.errors.length === 0) ok("no error in the browser");
else for (const message of new Set(seen.errors)) fail(`error in the browser: ${message}`);

await browser.close();
end();
