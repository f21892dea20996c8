// A person signs in with a real provider and opens workspaces; another workspace's pages try to get at them. Run by sign-in.sh.

import { appendFileSync } from "node:fs";
import { join } from "node:path";
import { check, end, essential, open, options, step, until } from "../lib/browser.mjs";

const { public: site, out, one, two, other } = options();
const { browser, context } = await open(out);
const SECRETS = join(out, "secrets.txt");

// Every secret that the browser gets to hold, for the suite to look for where it must not be.
const seenSecrets = new Set();
function secret(text) {
  if (text && text.length >= 16 && !seenSecrets.has(text)) {
    seenSecrets.add(text);
    appendFileSync(SECRETS, `${text}\n`);
  }
}
function watch(page) {
  page.on("request", (request) => {
    const url = new URL(request.url());
    if (!url.pathname.startsWith("/.gateway/")) return;
    for (const name of ["code", "state", "pre"]) secret(url.searchParams.get(name));
  });
}
async function cookiesOf(from) {
  const cookies = await from.cookies();
  for (const cookie of cookies) if (cookie.name.includes("gateway_")) secret(cookie.value);
  return cookies;
}

async function newPage(from = context) {
  const page = await from.newPage();
  watch(page);
  return page;
}

// Fills in the provider's own pages.
async function signInAs(page, name) {
  await page.waitForSelector('input[name="login"]');
  await page.fill('input[name="login"]', name);
  await page.fill('input[name="password"]', "any");
  await page.click('button[type="submit"]');
  await page.waitForSelector('form input[name="prompt"][value="consent"], form button', { state: "attached" });
  await page.click('button[type="submit"]');
}

const page = await newPage();
await essential("a workspace's address leads to the provider and back, with its query untouched", page, out, async () => {
  const wanted = `http://${one}/a//b?x=1&y=%2f%26&&z=&code=mine&state=mine`;
  await page.goto(wanted, { waitUntil: "domcontentloaded" });
  if (!page.url().startsWith("http://127.0.0.1:")) return `at ${page.url()} instead of the provider`;
  if (page.url().includes(one)) return "the provider is told which workspace it is for";
  await signInAs(page, "ann");
  await page.waitForURL((url) => url.host === one);
  if (page.url() !== wanted) return `at ${page.url()} instead of ${wanted}`;
  const target = await page.textContent("#target");
  if (target !== "?x=1&y=%2f%26&&z=&code=mine&state=mine") return `the app saw ${target}`;
});
await cookiesOf(context);

await step("a second workspace of the same owner opens without asking again", page, out, async () => {
  await page.goto(`http://${two}/`, { waitUntil: "domcontentloaded" });
  if ((await page.textContent("h1")) !== "two") return await page.textContent("body");
});
await step("a workspace of another owner looks like none", page, out, async () => {
  const response = await page.goto(`http://${other}/`, { waitUntil: "domcontentloaded" });
  const code = response.headers()["gateway-error"];
  if (response.status() !== 404 || code !== "no_such_host") return `status ${response.status()}, ${code}`;
});

// --- who sees which cookie ----------------------------------------------------------------------------------------------

const cookies = await cookiesOf(context);
const ours = cookies.filter((cookie) => cookie.name.includes("gateway_"));
const hosts = [new URL(site).hostname, one.split(":")[0], two.split(":")[0]];
check("each host has a session of its own", hosts.every((host) => ours.some((cookie) => cookie.domain === host && cookie.name === "gateway_session")), JSON.stringify(ours.map(({ name, domain }) => ({ name, domain }))));
check("no cookie of the gateway is for more than one host", ours.every((cookie) => !cookie.domain.startsWith(".")), JSON.stringify(ours));
check("no two hosts share an id", new Set(ours.filter((cookie) => cookie.name === "gateway_session").map((cookie) => cookie.value)).size === ours.filter((cookie) => cookie.name === "gateway_session").length);
check("all of them are HttpOnly and SameSite=Lax", ours.every((cookie) => cookie.httpOnly && cookie.sameSite === "Lax"), JSON.stringify(ours));
for (const host of [one, two, new URL(site).host]) {
  await step(`scripts at ${host.split(":")[0]} see no cookie of the gateway`, page, out, async () => {
    await page.goto(`http://${host}/`, { waitUntil: "domcontentloaded" });
    const visible = await page.evaluate(() => document.cookie).catch((error) => `error ${error.message}`);
    if (visible.includes("gateway_")) return visible;
  });
}

// --- a neighbour's page -------------------------------------------------------------------------------------------------

await page.goto(`http://${two}/plant`, { waitUntil: "domcontentloaded" });
await step("a neighbour's page cannot open a WebSocket", page, out, async () => {
  const opened = await page.evaluate((host) => new Promise((resolve) => {
    const socket = new WebSocket(`ws://${host}/`);
    socket.onopen = () => resolve("it opened");
    socket.onerror = () => resolve(null);
  }), one);
  if (opened) return opened;
});
await step("its own page can", page, out, async () => {
  await page.goto(`http://${one}/`, { waitUntil: "domcontentloaded" });
  const opened = await page.evaluate((host) => new Promise((resolve) => {
    const socket = new WebSocket(`ws://${host}/`);
    socket.onopen = () => resolve("open");
    socket.onerror = () => resolve("failed");
  }), one);
  if (opened !== "open") return opened;
});
await page.goto(`http://${two}/plant`, { waitUntil: "domcontentloaded" });
for (const [text, address, init] of [
  ["read a response", `http://${one}/`, { credentials: "include" }],
  ["read a response without CORS", `http://${one}/`, { credentials: "include", mode: "no-cors" }],
  ["read the public host", `${site}/`, { credentials: "include" }],
  ["send a form that counts", `http://${one}/changed-by-a-neighbour`, { method: "POST", credentials: "include", mode: "no-cors", body: "a=b" }],
]) {
  await step(`a neighbour's page cannot ${text}`, page, out, async () => {
    const got = await page.evaluate(async ([address, init]) => {
      try {
        const response = await fetch(address, init);
        return response.type === "opaque" ? null : `it read ${response.status}: ${(await response.text()).slice(0, 60)}`;
      } catch {
        return null;
      }
    }, [address, init]);
    if (got) return got;
  });
}
await step("nor embed the sign-in pages", page, out, async () => {
  const framed = await page.evaluate((address) => new Promise((resolve) => {
    const frame = document.createElement("iframe");
    frame.src = address;
    frame.onload = () => {
      try {
        resolve(frame.contentDocument?.body?.innerText ?? null);
      } catch {
        resolve(null);
      }
    };
    document.body.append(frame);
    setTimeout(() => resolve(null), 2000);
  }), `${site}/.gateway/sign-in`);
  if (framed) return framed;
});
await step("a neighbour's page cannot plant a cookie that counts", page, out, async () => {
  await page.evaluate(() => {
    for (const name of ["gateway_session", "gateway_pre"]) {
      for (const domain of ["", "; domain=localhost", "; domain=.localhost"]) document.cookie = `${name}=planted; path=/${domain}`;
    }
  });
  const planted = (await context.cookies()).filter((cookie) => cookie.value === "planted" && cookie.domain !== two.split(":")[0]);
  if (planted.length > 0) return JSON.stringify(planted);
  for (const [host, name] of [[one, "one"], [two, "two"]]) {
    await page.goto(`http://${host}/`, { waitUntil: "domcontentloaded" });
    if ((await page.textContent("h1")) !== name) return `${host}: ${await page.textContent("body")}`;
  }
  await page.goto(`${site}/`, { waitUntil: "domcontentloaded" });
  if (!(await page.textContent("body")).includes("ann")) return await page.textContent("body");
});

// --- signing out --------------------------------------------------------------------------------------------------------

// Opens a WebSocket from a page of the workspace and tells when it ends.
async function openStream(page) {
  await page.goto(`http://${one}/`, { waitUntil: "domcontentloaded" });
  await page.evaluate((host) => new Promise((resolve, reject) => {
    window.stream = new WebSocket(`ws://${host}/`);
    window.stream.onopen = () => resolve(null);
    window.stream.onerror = () => reject(new Error("no stream"));
    window.stream.onclose = () => { window.closedAt = Date.now(); };
  }), one);
}
const isCut = (page) => page.evaluate(() => window.stream.readyState === WebSocket.CLOSED);

await step("sign-out at the provider ends the session here and cuts what is open", page, out, async () => {
  await openStream(page);
  const idp = await newPage();
  const metadata = await (await fetch(`${process.env.IDP ?? providerOf()}/.well-known/openid-configuration`)).json();
  await idp.goto(metadata.end_session_endpoint, { waitUntil: "domcontentloaded" });
  const began = Date.now();
  await idp.click('button[value="yes"], button[name="logout"]');
  await until("the stream to be cut", 6, () => isCut(page));
  const took = Date.now() - began;
  if (took > 5000) return `it took ${took} ms`;
  await idp.close();
  const response = await page.goto(`${site}/`, { waitUntil: "domcontentloaded" });
  if (new URL(page.url()).origin === site && response.status() === 200 && (await page.textContent("body")).includes("ann")) return "still signed in";
});

// Where the provider is: where a browser without a session is sent.
function providerOf() {
  return providerAddress;
}
let providerAddress = "";
