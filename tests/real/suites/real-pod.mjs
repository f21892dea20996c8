// A workspace in a real pod, seen by the person who works in it: the editor opens in a real Chromium, a file is edited, a terminal
// runs a command, and the app that the devfile serves is a link away. Run by real-pod.sh, which looks into the pod afterwards.

import { join } from "node:path";
import { check, end, essential, open, options, record, signIn, step, until } from "../lib/browser.mjs";
import { append, listed, shown, terminal, workbench } from "../lib/editor.mjs";

const { out, link, site, app } = options();
const { browser, context } = await open(out);
const page = await context.newPage();
const seen = record(page);
const shot = (name) => page.screenshot({ path: join(out, `pod-${name}.png`) });

await signIn(page, link);
const started = Date.now();
await essential("the workspace's address opens its editor", page, out, async () => {
  await page.goto(site, { waitUntil: "domcontentloaded" });
  await workbench(page);
});
console.log(`the workbench is seen after ${((Date.now() - started) / 1000).toFixed(1)} s`);
await step("on the projects' folder", page, out, () => listed(page, "notes.txt", 60_000));
await step("a file opens, takes typing and is saved", page, out, async () => {
  await append(page, "notes.txt", "typed through the browser: déjà vu 42");
  await shown(page, "notes.txt", "déjà vu 42");
  await until("that nothing is left to save", 15, async () => (await page.locator(".tabs-container .tab.dirty").count()) === 0);
});
await shot("edited");
await step("a terminal runs a command in the pod, and pushes what was edited", page, out, async () => {
  await terminal(page, 'echo "$(uname -n) $(id -u)" > proof.txt; git add notes.txt && git commit -q -m "from the editor" && git push -q && echo yes > pushed.txt');
  await listed(page, "proof.txt", 30_000);
  await listed(page, "pushed.txt", 30_000);
});
await shot("terminal");
await step("the app of the devfile opens beside it", page, out, async () => {
  const other = await context.newPage();
  const response = await other.goto(app, { waitUntil: "domcontentloaded" });
  const text = (await other.locator("body").textContent()).trim();
  await other.close();
  if (!response.ok() || text !== "served") return `status ${response.status()}, ${text}`;
});
const carry = (socket) => socket.received > 0 && socket.sent > 0 && !socket.error;
await until("messages both ways", 30, () => seen.sockets.length >= 2 && seen.sockets.every(carry)).catch(() => {});
check("the editor's WebSockets carry messages both ways", seen.sockets.length >= 2 && seen.sockets.every(carry), JSON.stringify(seen.sockets));

await browser.close();
end();
