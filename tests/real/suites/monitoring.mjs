// A page in Chromium asks its app with a trace of its own, by way of a replica that the agent did not dial, and the spans that come of it
// are one tree. The tree is drawn into trace.txt.

import { appendFileSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { check, end, essential, open, options } from "../lib/browser.mjs";

const { url, connect, public: publicPort, token, spans: file, out } = options();
const { browser, context } = await open(out, [`--host-resolver-rules=MAP *.localhost:${publicPort} ${connect}`]);
await context.setExtraHTTPHeaders({ "gateway-authorization": `Bearer ${token}` });
const page = await context.newPage();
const id = (bytes) => [...crypto.getRandomValues(new Uint8Array(bytes))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
const [trace, root] = [id(16), id(8)];
const micros = () => Math.round((performance.timeOrigin + performance.now()) * 1000);
let seen;
let timing;
await essential("the page asks its app with a trace", page, out, async () => {
  await page.goto(url);
  const began = micros();
  seen = await page.evaluate(async (traceparent) => {
    const answer = await fetch("/traced", { headers: { traceparent } });
    return { status: answer.status, body: await answer.text(), timing: answer.headers.get("server-timing") };
  }, `00-${trace}-${root}-01`);
  timing = seen.timing;
  const browserSpan = { trace, span: root, parent: null, service: "chromium", name: "fetch /traced", began, ended: micros(), attributes: {} };
  appendFileSync(file, `${JSON.stringify(browserSpan)}\n`);
  return seen.status === 200 || `status ${seen.status}`;
});
const continued = /00-([0-9a-f]{32})-([0-9a-f]{16})-01/.exec(seen.body);
check("the app is given the browser's trace", continued?.[1] === trace, seen.body.slice(0, 400));
check("the browser's own tools see where the time went", /^queue;dur=[\d.]+, tunnel;dur=[\d.]+, app;dur=[\d.]+$/.test(timing ?? ""), timing);

const read = () => (existsSync(file) ? readFileSync(file, "utf8").trim().split("\n").filter(Boolean).map((line) => JSON.parse(line)) : []);
let spans = [];
for (let tries = 0; tries < 100 && spans.length < 5; tries += 1) {
  spans = read().filter((span) => span.trace === trace);
  if (spans.length < 5) await new Promise((resolve) => setTimeout(resolve, 100));
}
// The app's own span, as its library would send it: a child of what it was given.
const app = spans.find((span) => span.name === "app");
if (app && continued) {
  const middle = (app.ended - app.began) / 4;
  spans.push({ ...app, span: id(8), parent: continued[2], service: "app", name: "GET /traced", began: app.began + middle, ended: app.ended - middle, attributes: {} });
}
check("browser, gateway and app are one trace of six spans", spans.length === 6, JSON.stringify(spans.map((span) => span.name)));
const tunnel = spans.find((span) => span.name === "tunnel");
check("by way of another replica", tunnel?.attributes["gateway.way"] === "relay", JSON.stringify(tunnel));
const parents = new Set(spans.map((span) => span.span));
check("whose only root is the browser's", spans.filter((span) => !parents.has(span.parent)).length === 1, JSON.stringify(spans));

// Draws the tree, each span as a bar over the time of the whole.
const first = Math.min(...spans.map((span) => span.began));
const last = Math.max(...spans.map((span) => span.ended));
const COLUMNS = 60;
const column = (time) => Math.round(((time - first) / Math.max(last - first, 1)) * COLUMNS);
const lines = [];
function draw(span, depth) {
  const [from, to] = [column(span.began), Math.max(column(span.ended), column(span.began) + 1)];
  const bar = `${" ".repeat(from)}${"#".repeat(to - from)}`.padEnd(COLUMNS + 1);
  const took = `${((span.ended - span.began) / 1000).toFixed(1)} ms`.padStart(9);
  lines.push(`${`${"  ".repeat(depth)}${span.name}`.padEnd(22)} ${span.service.padEnd(18)} ${bar} ${took}`);
  const children = spans.filter((child) => child.parent === span.span).sort((one, other) => one.began - other.began);
  for (const child of children) draw(child, depth + 1);
}
for (const span of spans.filter((one) => !parents.has(one.parent))) draw(span, 0);
writeFileSync(join(out, "trace.txt"), `${lines.join("\n")}\n`);
console.log(lines.join("\n"));
await browser.close();
end();
