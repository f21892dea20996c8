// The owner of a workspace at its request inspector, in Chromium. Run by inspector.sh.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { check, end, essential, open, options, record, signInAs, step, until } from "../lib/browser.mjs";
import { adaptationMistakes, mistakes } from "../lib/pages.mjs";

const { inspector, shop, site, port, out } = options();
const { browser, context: ann } = await open(out);
const SECRET = "s3cr3t";

// Opens a page of the workspace, through the provider's own pages.
async function openAs(context, name, address) {
  const page = await context.newPage();
  const seen = record(page);
  await page.goto(address, { waitUntil: "domcontentloaded" });
  await signInAs(page, name);
  await page.waitForURL((url) => url.host === new URL(address).host || url.host === new URL(site).host);
  return { page, seen };
}

const rows = (page) => page.locator(".exchange").count();
const row = (page, text) => page.locator(".exchange", { hasText: text });
const show = (page, path) => page.goto(`${inspector}${path}`, { waitUntil: "domcontentloaded" });
// The browser finds hosts below localhost by itself, and no other program here does.
const got = (page, path) => page.evaluate(async (path) => (await fetch(path)).text(), path);
const text = (page, selector = "main") => page.locator(selector).innerText();

let page, seen;
await essential("the owner opens the list, which is empty and live", await ann.newPage(), out, async () => {
  ({ page, seen } = await openAs(ann, "ann", `${inspector}/`));
  await until("live", 20, async () => (await page.textContent("#live")) === "Live");
  if ((await rows(page)) !== 0 || !(await text(page)).includes("Nothing was asked yet")) return await text(page);
});
const app = await ann.newPage();
await essential("requests to an app appear in the list as they are made", app, out, async () => {
  await app.goto(`${shop}/`);
  await until("the shop is done", 20, async () => (await app.textContent("#done")) === "done");
  await until("the rows", 20, async () => (await row(page, "/ws").count()) === 1 && (await row(page, "/orders").count()) === 2);
  if (await page.evaluate(() => performance.getEntriesByType("navigation")[0].type !== "navigate")) return "the page was loaded again";
  if (!(await row(page, "/ws").innerText()).includes("WebSocket")) return await row(page, "/ws").innerText();
});
await step("the request that failed is found by the filter, whose address says it", page, out, async () => {
  await page.check("#failing");
  await page.fill("#q", "OUT OF STOCK");
  await page.fill("#port", port);
  await page.click("main form .primary");
  await page.waitForURL(/failing=1/);
  const url = new URL(page.url());
  if (url.searchParams.get("q") !== "OUT OF STOCK" || url.searchParams.get("port") !== port) return page.url();
  if ((await rows(page)) !== 1 || !(await row(page, "500").innerText()).includes("/orders")) return await text(page);
  await until("live", 20, async () => (await page.textContent("#live")) === "Live");
});
await step("keys lead to it, and it is shown in full", page, out, async () => {
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await page.waitForURL(/exchanges/);
  const said = await text(page);
  for (const part of ["500", '"error": "out of stock"', '"item": 7', "x-forwarded-for", "[redacted]", "connect", "an open connection", "wait", "receive", "access_token=redacted"]) {
    if (!said.includes(part)) return `no ${part} in ${said.slice(0, 2000)}`;
  }
});
await step("it is edited and sent again, and this time the shop sells", page, out, async () => {
  await page.keyboard.press("e");
  await page.waitForURL(/edit/);
  const body = await page.inputValue("#body");
  if (!body.includes('"item":7')) return body;
  if (!/authorization.*x-api-key|x-api-key.*authorization/s.test(await text(page))) return "it does not say what was not recorded";
  await page.fill("#body", body.replace('"item":7', '"item":9'));
  await page.fill("#target", "/orders?again=1");
  await page.click("main form .primary");
  await page.waitForURL(/exchanges\/\d+\?/);
  const said = await text(page);
  if (!said.includes('"sold": 9') || !said.includes("replay of")) return said.slice(0, 2000);
  await page.click("#back");
  await page.click("text=Show all");
  await until("its row", 10, async () => (await row(page, "/orders?again=1").innerText()).includes("replay of"));
});
await step("what is no request is told, and nothing that was typed is lost", page, out, async () => {
  await row(page, "/orders?again=1").locator("a").click();
  await page.click("#edit");
  await page.fill("#headers", "x-typed: 1\nno field");
  await page.click("main form .primary");
  await page.waitForSelector("[role=alert]");
  if (!(await text(page)).includes("line 2 of the headers")) return await text(page);
  if ((await page.inputValue("#headers")) !== "x-typed: 1\nno field") return await page.inputValue("#headers");
});
await step("messages of a WebSocket are shown, and the next one as it passes", page, out, async () => {
  await show(page, "/?q=hello-socket");
  await row(page, "/ws").locator("a").click();
  await page.waitForURL(/exchanges/);
  for (const part of ["hello-socket", "echo hello-socket", "sent", "received"]) if (!(await text(page)).includes(part)) return `no ${part}`;
  await until("live", 20, async () => (await page.textContent("#live")) === "Live");
  await app.evaluate(() => globalThis.say("second-message"));
  await until("the next message", 10, async () => (await text(page)).includes("echo second-message"));
});
await step("packed answers and streams of events are shown as text", page, out, async () => {
  await show(page, "/?q=packed");
  await row(page, "/packed").locator("a").click();
  await page.waitForURL(/exchanges/);
  if (!(await text(page)).includes('"packed": [')) return await text(page);
  await show(page, "/?q=/events");
  await row(page, "/events").locator("a").click();
  await page.waitForURL(/exchanges/);
  const said = await text(page);
  if (!said.includes("price") || !said.includes("41") || !said.includes("42")) return said;
});
await step("content of a hostile app is text, on each page", page, out, async () => {
  await show(page, "/?q=attacked");
  const links = await page.locator(".exchange a").evaluateAll((links) => links.map((link) => link.getAttribute("href")));
  if (links.length < 1) return "it is not in the list";
  for (const link of ["/?q=attacked", ...links, ...links.map((link) => link.replace("?", "/edit?"))]) {
    await show(page, link);
    if (!(await text(page, "body")).includes("attacked") && !(await page.content()).includes("attacked")) return `${link} does not show it`;
    if (await page.evaluate(() => window.attacked !== undefined || document.querySelector("main img, main script"))) return `${link} has it as markup`;
  }
});

// --- the archive ------------------------------------------------------------------------------------------------------------

let har;
const file = join(out, "requests.har");
await step("all requests are saved as one archive", page, out, async () => {
  await show(page, "/");
  const [download] = await Promise.all([page.waitForEvent("download"), page.click("text=Download as HAR")]);
  await download.saveAs(file);
  har = JSON.parse(readFileSync(file, "utf8"));
  const mistaken = archiveMistakes(har);
  if (mistaken) return mistaken;
  if (har.log.entries.length < 8) return `${har.log.entries.length} entries`;
});
await step("Chromium's network panel imports it, with its WebSocket", page, out, async () => {
  const imported = await importedByDevTools(readFileSync(file, "utf8"));
  if (imported.length !== har.log.entries.length) return `${imported.length} of ${har.log.entries.length}`;
  const failed = imported.find(({ status }) => status === 500);
  if (!failed?.url.includes("/orders") || failed.method !== "POST") return JSON.stringify(imported).slice(0, 1000);
  const socket = imported.find(({ url }) => url.endsWith("/ws"));
  if (!socket?.frames.includes("echo hello-socket")) return JSON.stringify(socket);
});
await step("a browser without a network replays it", page, out, async () => {
  const context = await browser.newContext();
  await context.routeFromHAR(file, { notFound: "abort" });
  const replayed = await context.newPage();
  await replayed.goto(`${shop}/packed`);
  const said = await replayed.textContent("body");
  await context.close();
  if (!said.includes('{"packed":[1,2,3]}')) return said;
});
await step("one request is saved by itself", page, out, async () => {
  const one = JSON.parse(await got(page, "/exchanges/1/har"));
  return one.log.entries.length === 1 ? archiveMistakes(one) : `${one.log.entries.length} entries`;
});
await step("no credential is on a page or in the archive", page, out, async () => {
  const texts = [readFileSync(file, "utf8")];
  await show(page, "/");
  const links = await page.locator(".exchange a").evaluateAll((links) => links.map((link) => link.getAttribute("href")));
  for (const path of ["/", ...links, ...links.map((link) => `${link}/edit`)]) texts.push(await got(page, path));
  // The shop's own page says them in its script, which is a body.
  const own = "Bearer s3cr3t-bearer";
  const found = texts.findIndex((text) => text.replaceAll(/access_token=s3cr3t-query&|Bearer s3cr3t-bearer|s3cr3t-key/g, "").includes(SECRET));
  if (found >= 0) return `text ${found}`;
  const heads = har.log.entries.flatMap(({ request, response }) => [...request.headers, ...response.headers, ...request.queryString, { value: request.url }]);
  const told = heads.find(({ value }) => value.includes(SECRET));
  if (told) return JSON.stringify(told);
  if (!texts[0].includes(own)) return "the shop's page was not recorded";
});

// --- other people -------------------------------------------------------------------------------------------------------------

await step("another user, with whom the app is shared, is refused", page, out, async () => {
  const context = await browser.newContext();
  const { page: bob } = await openAs(context, "bob", `${shop}/`);
  await until("the shop is done", 20, async () => (await bob.textContent("#done")) === "done");
  const answer = await bob.goto(`${inspector}/`);
  const told = `${answer.status()} ${await bob.textContent("body")}`;
  if (answer.status() !== 403 || /orders|Nothing was asked/.test(told)) return told.slice(0, 500);
  for (const path of ["/har", "/exchanges/1", "/live"]) {
    const answer = await bob.goto(`${inspector}${path}`);
    if (answer.status() !== 403) return `${path}: ${answer.status()}`;
  }
  await context.close();
});
await step("a page of an app beside it reads nothing and sends nothing with the owner's cookie", app, out, async () => {
  const told = await app.evaluate(async (inspector) => {
    const tries = { read: [`${inspector}/har`, {}], mode: [`${inspector}/har`, { mode: "no-cors" }], send: [`${inspector}/exchanges/1/replay`, { method: "POST", body: "method=GET&target=/stolen", headers: { "content-type": "application/x-www-form-urlencoded" } }] };
    const said = {};
    for (const [name, [address, how]] of Object.entries(tries)) {
      const answer = await fetch(address, { credentials: "include", ...how }).catch(() => ({ type: "error" }));
      said[name] = `${answer.type} ${answer.status ?? ""}`;
    }
    const frame = document.createElement("iframe");
    frame.src = inspector;
    document.body.append(frame);
    await new Promise((resolve) => { frame.onload = resolve; });
    said.frame = (() => { try { return frame.contentDocument?.title ?? "closed"; } catch { return "closed"; } })();
    return said;
  }, inspector);
  if (!/^error/.test(told.read) || !/^error/.test(told.send) || told.frame !== "closed") return JSON.stringify(told);
  await show(page, "/?q=stolen");
  if ((await rows(page)) !== 0) return "it was sent";
});

// --- the pages ------------------------------------------------------------------------------------------------------------------

await step("without JavaScript the list is there, and forms work", page, out, async () => {
  const context = await browser.newContext({ javaScriptEnabled: false, storageState: await ann.storageState() });
  const plain = await context.newPage();
  await plain.goto(`${inspector}/`);
  await plain.check("#failing");
  await plain.click("main form .primary");
  if ((await rows(plain)) < 1) return await text(plain);
  await plain.locator(".exchange a").first().click();
  await plain.click("#edit");
  await plain.click("main form .primary");
  const said = await text(plain);
  await context.close();
  if (!said.includes("replay of")) return said;
});
for (const [name, path] of [["list", "/"], ["request", "/exchanges/2"], ["WebSocket", undefined], ["form", "/exchanges/2/edit"]]) {
  await step(`no violation of axe on the ${name}, in both schemes, wide and narrow`, page, out, async () => {
    if (path) await show(page, path);
    else {
      await show(page, "/?q=hello-socket");
      await row(page, "/ws").first().locator("a").click();
      await page.waitForURL(/exchanges/);
    }
    return mistakes(page, { shot: (form) => page.screenshot({ path: join(out, `${name}-${form}.png`) }) });
  });
}
await step("in colours of the system nothing is lost, and nothing moves that is not to", page, out, async () => {
  await show(page, "/");
  return adaptationMistakes(page, { stops: 12, shot: () => page.screenshot({ path: join(out, "forced.png") }) });
});
await step("the dashboard leads to it", page, out, async () => {
  await page.goto(`${site}/workspaces/one`);
  if (page.url().includes("login") || (await page.locator('input[name="login"]').count())) await signInAs(page, "ann");
  await page.waitForSelector("text=Requests");
  if (!(await text(page, "table >> nth=0")).includes("requests")) return await text(page, "table >> nth=0");
  await page.click("a.button:has-text('Requests')");
  await page.waitForURL(`${inspector}/**`);
});
await step("all is forgotten when its owner says so", page, out, async () => {
  await page.click("text=Forget all");
  await page.waitForURL(`${inspector}/`);
  if ((await rows(page)) !== 0) return `${await rows(page)} are left`;
});
const errors = seen.errors.filter((text) => !/ERR_|Failed to load resource/.test(text));
check("the pages complain of nothing", errors.length === 0, errors.join(" | "));
await browser.close();
end();

// What the format wants of an archive (HTTP Archive 1.2), as one text; nothing if all of it is there.
function archiveMistakes({ log }) {
  const found = [];
  const wants = (holds, what) => holds || found.push(what);
  const is = { text: (value) => typeof value === "string", number: (value) => typeof value === "number", list: Array.isArray };
  wants(log.version === "1.2" && is.text(log.creator?.name) && is.text(log.creator?.version), "log");
  for (const entry of log.entries) {
    const { request, response, timings } = entry;
    const at = `${request?.method} ${request?.url}`;
    wants(!Number.isNaN(Date.parse(entry.startedDateTime)) && is.number(entry.time) && typeof entry.cache === "object", `entry of ${at}`);
    for (const name of ["method", "url", "httpVersion"]) wants(is.text(request[name]), `request.${name} of ${at}`);
    for (const part of [request, response]) {
      wants(is.list(part.cookies) && is.list(part.headers), `lists of ${at}`);
      wants(part.headers.every((field) => is.text(field.name) && is.text(field.value)), `headers of ${at}`);
      wants(is.number(part.headersSize) && is.number(part.bodySize), `sizes of ${at}`);
    }
    wants(is.list(request.queryString) && request.queryString.every((pair) => is.text(pair.name) && is.text(pair.value)), `query of ${at}`);
    if (request.postData) wants(is.text(request.postData.mimeType) && is.text(request.postData.text), `body of ${at}`);
    wants(is.number(response.status) && is.text(response.statusText) && is.text(response.redirectURL), `response of ${at}`);
    wants(is.number(response.content.size) && is.text(response.content.mimeType), `content of ${at}`);
    for (const name of ["send", "wait", "receive"]) wants(is.number(timings[name]) && timings[name] >= 0, `timings.${name} of ${at}`);
    for (const name of ["blocked", "dns", "connect", "ssl"]) wants(is.number(timings[name]), `timings.${name} of ${at}`);
    const parts = ["blocked", "dns", "connect", "send", "wait", "receive"].map((name) => Math.max(timings[name], 0));
    wants(Math.abs(parts.reduce((sum, part) => sum + part) - entry.time) < 1, `time of ${at}`);
  }
  return found.length ? found.slice(0, 5).join("; ") : undefined;
}

// Has the importer of Chromium's own network panel read an archive: it is loaded from the browser's DevTools.
async function importedByDevTools(har) {
  const debug = await browser.newBrowserCDPSession();
  const { targetId } = await debug.send("Target.createTarget", { url: "devtools://devtools/bundled/devtools_app.html" });
  const { sessionId } = await debug.send("Target.attachToTarget", { targetId, flatten: false });
  const ask = (expression) =>
    new Promise((resolve) => {
      const message = JSON.stringify({ id: 1, method: "Runtime.evaluate", params: { expression, awaitPromise: true, returnByValue: true } });
      const hear = (event) => {
        const { id, result } = JSON.parse(event.message);
        if (id !== 1) return;
        debug.off("Target.receivedMessageFromTarget", hear);
        resolve(result);
      };
      debug.on("Target.receivedMessageFromTarget", hear);
      debug.send("Target.sendMessageToTarget", { sessionId, message });
    });
  await until("the panel's page", 20, async () => (await ask("location.protocol"))?.result?.value === "devtools:");
  const { result, exceptionDetails } = await ask(`import("devtools://devtools/bundled/models/har/har.js").then(({ HARFormat, Importer }) => {
    const requests = Importer.Importer.requestsFromHARLog(new HARFormat.HARRoot(JSON.parse(${JSON.stringify(har)})).log);
    return JSON.stringify(requests.map((request) => ({ url: request.url(), method: request.requestMethod, status: request.statusCode, frames: request.frames().map((frame) => frame.text) })));
  })`);
  await debug.send("Target.closeTarget", { targetId });
  if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
  return JSON.parse(result.value);
}
