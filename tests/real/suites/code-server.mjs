// One working session in code-server: the workbench loads, a file is edited and saved, a terminal runs a command, a reload
// brings everything back. Run by code-server.sh.

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { check, end, essential, fail, ok, open, options, record, reload, save, signIn, step, until } from "../lib/browser.mjs";
import { append, listed, openFile, shown, terminal, workbench } from "../lib/editor.mjs";

// What code-server writes to the console with no proxy in between. Each entry must also be seen in the direct run of the
// same suite, or it explains nothing.
const ALLOWED = [
  // A proprietary module that the open build does not contain; the workbench asks for it and goes on without it.
  /status of 404 .*\/node_modules\/vsda\/rust\/web\/vsda(_bg\.wasm|\.js)\)$/,
];

const { label, base, folder, out, link, compare, site } = options();
const { browser, context } = await open(out);
const page = await context.newPage();
const seen = record(page);
const named = (text) => `${label}: ${text}`;
const shot = (name) => page.screenshot({ path: join(out, `${label}-${name}.png`) });

await signIn(page, link);
const started = Date.now();
await essential(named("the workbench loads"), page, out, async () => {
  await page.goto(`${base}/?folder=${encodeURIComponent(folder)}`, { waitUntil: "domcontentloaded" });
  await workbench(page);
  await listed(page, "notes.txt", 60_000);
});
console.log(`${label}: workbench after ${Date.now() - started} ms`);

await step(named("a file opens, takes typing and is saved to disk"), page, out, async () => {
  await append(page, "notes.txt", "typed through the browser: déjà vu 42");
  await until("the typed text on disk", 15, () =>
    readFileSync(join(folder, "notes.txt"), "utf8") === "first line\ntyped through the browser: déjà vu 42");
});
await shot("edited");

await step(named("a terminal runs a command"), page, out, async () => {
  await terminal(page, "echo tunnel-$((40+2)) > proof.txt");
  await until("proof.txt", 30, () => existsSync(join(folder, "proof.txt")) && readFileSync(join(folder, "proof.txt"), "utf8") === "tunnel-42\n");
});
await step(named("the new file shows up in the explorer by itself"), page, out, async () => {
  await listed(page, "proof.txt", 20_000);
});
await shot("terminal");

await step(named("a Markdown preview renders (web view with a service worker)"), page, out, async () => {
  await openFile(page, "page.md");
  await page.keyboard.press("Control+Shift+v");
  await until("the rendered heading", 40, async () => {
    for (const frame of page.frames()) {
      if ((await frame.locator("h1").first().textContent({ timeout: 500 }).catch(() => "")) === "A heading") return true;
    }
    return false;
  });
});
await shot("preview");

await step(named("a reload brings the workbench and the file back"), page, out, async () => {
  await reload(page, seen);
  await workbench(page);
  // Which editors were open is written in idle time, so an early reload may forget it; the file itself may not be lost.
  await openFile(page, "notes.txt", 60_000);
  await shown(page, "notes.txt", "déjà vu 42");
});
await shot("reloaded");

// By path, all pages of the workspaces are one origin, and the dashboard is another one.
if (site) {
  await step(named("the page reads nothing of the dashboard"), page, out, async () => {
    const found = await page.evaluate(async (dashboard) => {
      const read = (path, options) => fetch(dashboard + path, options).then((answer) => `read with ${answer.status}`, () => "");
      const api = await read("/api/v1/whoami", { credentials: "include" });
      const token = await read("/api/v1/tokens", { credentials: "include", method: "POST", headers: { "content-type": "application/json" }, body: "{}" });
      const opaque = await fetch(`${dashboard}/`, { credentials: "include", mode: "no-cors" }).then((answer) => (answer.type === "opaque" ? "" : answer.type), () => "");
      const frame = document.createElement("iframe");
      frame.src = `${dashboard}/`;
      const loaded = new Promise((done) => { frame.onload = done; setTimeout(done, 3_000); });
      document.body.append(frame);
      await loaded;
      let framed = "";
      try { framed = frame.contentDocument ? frame.contentDocument.body?.innerText ?? "" : ""; } catch { /* another origin */ }
      frame.remove();
      return { api, token, opaque, framed, cookies: document.cookie };
    }, site);
    if (found.api || found.token || found.opaque || found.framed || /gateway/.test(found.cookies)) return JSON.stringify(found);
  });
  await step(named("and the dashboard leads to it by path"), page, out, async () => {
    const other = await context.newPage();
    await other.goto(site, { waitUntil: "domcontentloaded" });
    const links = await other.locator("a").evaluateAll((all) => all.map((link) => link.href));
    await other.close();
    const root = base.slice(0, base.lastIndexOf("/") + 1);
    if (!links.some((link) => link.startsWith(root))) return `no link to ${root}: ${links.join(" ")}`;
  });
  // What the browser says of the attempts just made.
  seen.errors = seen.errors.filter((message) => !message.includes(site));
}

const sockets = () => seen.sockets.filter((socket) => socket.url.startsWith(base.replace(/^http/, "ws")));
const carry = () => sockets().length >= 2 && sockets().every((s) => s.received > 0 && s.sent > 0 && !s.error);
// The youngest may just have been opened.
await until("messages both ways", 30, carry).catch(() => {});
check(named("its WebSockets carry messages both ways"), carry(), JSON.stringify(sockets()));

// Addresses and hashes differ from run to run; the rest of a message tells what it is.
const shape = (message) => message.replaceAll(base, "BASE").replaceAll(base.replace(/^http/, "ws"), "BASE").replaceAll(folder, "FOLDER").replace(/[0-9a-f]{8,}/g, "HASH");
const errors = [...new Set(seen.errors.map(shape))];
save(out, `${label}-errors.json`, errors);
save(out, `${label}-record.json`, seen);
const direct = compare ? JSON.parse(readFileSync(compare, "utf8")) : errors;
const allowed = ALLOWED.filter((pattern) => direct.some((message) => pattern.test(message)));
const unexplained = errors.filter((message) => !allowed.some((pattern) => pattern.test(message)));
if (unexplained.length === 0) ok(named("no unexplained error in the browser"));
else for (const message of unexplained) fail(named(`error in the browser: ${message}`));

await browser.close();
end();
