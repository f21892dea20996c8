// A person signs in with a real provider and opens workspaces; another workspace's pages try to get at them. Run by sign-in.sh.

import { appendFileSync, existsSync, writeFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import { join } from "node:path";
import { check, end, essential, open, options, signInAs, step, until } from "../lib/browser.mjs";

const { public: site, provider, out, one, two, other, api } = options();
// In the shape of production everything is https, on names that only this browser knows, with a certificate of our own.
const secure = site.startsWith("https:");
const { browser, context } = await open(out, secure ? ["--host-resolver-rules=MAP *.test 127.0.0.1, MAP gw.example 127.0.0.1", "--ignore-certificate-errors"] : []);
const at = (host) => `${secure ? "https" : "http"}://${host}`;
const socketAt = (host) => `${secure ? "wss" : "ws"}://${host}/`;
const SESSION = secure ? "__Host-gateway_session" : "gateway_session";
const PRE = secure ? "__Host-gateway_pre" : "gateway_pre";
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

const page = await newPage();
await essential("a workspace's address leads to the provider and back, with its query untouched", page, out, async () => {
  const wanted = `${at(one)}/a//b?x=1&y=%2f%26&&z=&code=mine&state=mine`;
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

// --- two ports of one workspace ------------------------------------------------------------------------------------------

// In the zone `localhost` each host is a site of its own to a browser, which sends no cookie from one to another.
for (const [text, init] of [
  ["reads", { credentials: "include" }],
  ["sends JSON to", { credentials: "include", method: "POST", headers: { "content-type": "application/json" }, body: "{}" }],
]) {
  await step(`its page ${secure ? text : `in the zone localhost never ${text}`} another port of it that nobody has opened`, page, out, async () => {
    const got = await page.evaluate(async ([address, init]) => {
      try {
        const response = await fetch(address, init);
        return `${response.status} ${await response.text()}`;
      } catch (error) {
        return `failed: ${error.message}`;
      }
    }, [`${at(api)}/api`, init]);
    if (secure !== (got.startsWith("200 ") && got.includes("<h1>api</h1>"))) return got;
  });
}

await step("a second workspace of the same owner opens without asking again", page, out, async () => {
  await page.goto(`${at(two)}/`, { waitUntil: "domcontentloaded" });
  if ((await page.textContent("h1")) !== "two") return await page.textContent("body");
});
await step("a workspace of another owner looks like none", page, out, async () => {
  const response = await page.goto(`${at(other)}/`, { waitUntil: "domcontentloaded" });
  const code = response.headers()["gateway-error"];
  if (response.status() !== 404 || code !== "no_such_host") return `status ${response.status()}, ${code}`;
});

// --- who sees which cookie ----------------------------------------------------------------------------------------------

const cookies = await cookiesOf(context);
const ours = cookies.filter((cookie) => cookie.name.includes("gateway_"));
const hosts = [new URL(site).hostname, one.split(":")[0], two.split(":")[0]];
check("each host has a session of its own", hosts.every((host) => ours.some((cookie) => cookie.domain === host && cookie.name === SESSION)), JSON.stringify(ours.map(({ name, domain }) => ({ name, domain }))));
check("no cookie of the gateway is for more than one host", ours.every((cookie) => !cookie.domain.startsWith(".")), JSON.stringify(ours));
check("no two hosts share an id", new Set(ours.filter((cookie) => cookie.name === SESSION).map((cookie) => cookie.value)).size === ours.filter((cookie) => cookie.name === SESSION).length);
check("all of them are HttpOnly and SameSite=Lax", ours.every((cookie) => cookie.httpOnly && cookie.sameSite === "Lax"), JSON.stringify(ours));
if (secure) check("all of them are Secure, with a prefix that no other host can set", ours.every((cookie) => cookie.secure && cookie.name.startsWith("__Host-")), JSON.stringify(ours));
for (const host of [one, two, new URL(site).host]) {
  await step(`scripts at ${host.split(":")[0]} see no cookie of the gateway`, page, out, async () => {
    await page.goto(`${at(host)}/`, { waitUntil: "domcontentloaded" });
    const visible = await page.evaluate(() => document.cookie).catch((error) => `error ${error.message}`);
    if (visible.includes("gateway_")) return visible;
  });
}

// --- a neighbour's page -------------------------------------------------------------------------------------------------

await page.goto(`${at(two)}/plant`, { waitUntil: "domcontentloaded" });
await step("a neighbour's page cannot open a WebSocket", page, out, async () => {
  const opened = await page.evaluate((host) => new Promise((resolve) => {
    const socket = new WebSocket(host);
    socket.onopen = () => resolve("it opened");
    socket.onerror = () => resolve(null);
  }), socketAt(one));
  if (opened) return opened;
});
await step("its own page can", page, out, async () => {
  await page.goto(`${at(one)}/`, { waitUntil: "domcontentloaded" });
  const opened = await page.evaluate((host) => new Promise((resolve) => {
    const socket = new WebSocket(host);
    socket.onopen = () => resolve("open");
    socket.onerror = () => resolve("failed");
  }), socketAt(one));
  if (opened !== "open") return opened;
});
await page.goto(`${at(two)}/plant`, { waitUntil: "domcontentloaded" });
for (const [text, address, init] of [
  ["read a response", `${at(one)}/`, { credentials: "include" }],
  ["read a response without CORS", `${at(one)}/`, { credentials: "include", mode: "no-cors" }],
  ["read the public host", `${site}/`, { credentials: "include" }],
  ["send a form that counts", `${at(one)}/changed-by-a-neighbour`, { method: "POST", credentials: "include", mode: "no-cors", body: "a=b" }],
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
  await page.evaluate(([names, zone]) => {
    for (const name of names) {
      for (const domain of ["", `; domain=${zone}`, `; domain=.${zone}`]) {
        for (const more of ["", "; secure"]) document.cookie = `${name}=planted; path=/${domain}${more}`;
      }
    }
  }, [[SESSION, PRE], two.split(":")[0].split(".").slice(1).join(".")]);
  const planted = (await context.cookies()).filter((cookie) => cookie.value === "planted" && cookie.domain !== two.split(":")[0] && [SESSION, PRE].includes(cookie.name));
  if (planted.length > 0) return JSON.stringify(planted);
  for (const [host, name] of [[one, "one"], [two, "two"]]) {
    await page.goto(`${at(host)}/`, { waitUntil: "domcontentloaded" });
    if ((await page.textContent("h1")) !== name) return `${host}: ${await page.textContent("body")}`;
  }
  await page.goto(`${site}/`, { waitUntil: "domcontentloaded" });
  if (!(await page.textContent("body")).includes("ann")) return await page.textContent("body");
});

// --- signing out --------------------------------------------------------------------------------------------------------

// Opens a WebSocket from a page of the workspace.
async function openStream(page) {
  await page.goto(`${at(one)}/`, { waitUntil: "domcontentloaded" });
  await page.evaluate((host) => new Promise((resolve, reject) => {
    window.stream = new WebSocket(host);
    window.stream.onopen = () => resolve(null);
    window.stream.onerror = () => reject(new Error("no stream"));
  }), socketAt(one));
}
const isCut = (page) => page.evaluate(() => window.stream.readyState === WebSocket.CLOSED);
async function signIn(from) {
  const page = await newPage(from);
  await page.goto(`${site}/`, { waitUntil: "domcontentloaded" });
  if (new URL(page.url()).origin !== site) await signInAs(page, "ann");
  await page.waitForURL(`${site}/`);
  await cookiesOf(from);
  return page;
}
// All names are this machine; Node would ask a name server.
function ask(address, session) {
  const url = new URL(address);
  const headers = { cookie: `${SESSION}=${session}`, "sec-fetch-site": "none" };
  const lookup = (_, { all }, found) => (all ? found(null, [{ address: "127.0.0.1", family: 4 }]) : found(null, "127.0.0.1", 4));
  const settings = { headers, lookup, agent: false, rejectUnauthorized: false };
  return new Promise((resolve, reject) => {
    const request = (secure ? https : http).get(url, settings, (answer) => resolve(answer.resume().statusCode));
    request.on("error", reject);
  });
}
async function isSignedIn(from) {
  const [session] = (await from.cookies(site)).filter((cookie) => cookie.name === SESSION);
  return (await ask(`${site}/`, session?.value ?? "")) === 200;
}

await step("sign-out at the provider ends the session here, by its message, and cuts what is open", page, out, async () => {
  if (!(await isSignedIn(context))) return "not signed in before";
  await openStream(page);
  const there = await newPage();
  const metadata = await (await fetch(`${provider}/.well-known/openid-configuration`)).json();
  await there.goto(metadata.end_session_endpoint, { waitUntil: "domcontentloaded" });
  const began = Date.now();
  await there.click('button[name="logout"]');
  await until("the stream to be cut", 6, () => isCut(page));
  console.log(`cut ${Date.now() - began} ms after the click`);
  if (await isSignedIn(context)) return "still signed in";
  await there.close();
});
await step("signing in again works, with the password", page, out, async () => {
  const again = await signIn(context);
  if (!(await again.textContent("body")).includes("ann")) return await again.textContent("body");
  await again.close();
});

// A second browser of the same person.
const second = await browser.newContext();
second.setDefaultTimeout(30_000);
await step("the button signs out here and leads to the provider, which leads back", page, out, async () => {
  const here = await signIn(second);
  await openStream(page);
  await here.click("header button:not([formaction])");
  await here.waitForURL((url) => url.origin !== site || url.pathname === "/.gateway/sign-out");
  await here.waitForURL((url) => url.href.startsWith(provider));
  if (await isSignedIn(second)) return "still signed in";
  await here.click('button[name="logout"]');
  await here.waitForURL(`${site}/.gateway/signed-out*`);
  if (!(await here.textContent("h1")).includes("signed out")) return await here.textContent("body");
  if (await isCut(page)) return "the other browser was cut too";
});
await step("sign out everywhere ends the other browser and cuts what it has open", page, out, async () => {
  const here = await signIn(second);
  await openStream(page);
  const began = Date.now();
  await here.goto(`${site}/me`);
  await here.getByRole("button", { name: "Sign out everywhere" }).click();
  await until("the stream to be cut", 6, () => isCut(page));
  console.log(`cut ${Date.now() - began} ms after the click`);
  if ((await isSignedIn(context)) || (await isSignedIn(second))) return "somebody is still signed in";
});
await step("an address with a stolen cookie of any host opens nothing", page, out, async () => {
  for (const host of [one, two]) {
    for (const value of seenSecrets) {
      if ((await ask(`${at(host)}/`, value)) === 200) return `${host} answers`;
    }
  }
});

await step("a disabled user is cut off within 5 s and does not come in again", page, out, async () => {
  const third = await browser.newContext();
  third.setDefaultTimeout(30_000);
  const here = await signIn(third);
  await openStream(here);
  writeFileSync(join(out, "disable"), "ann");
  const began = Date.now();
  await until("the operator's command", 10, () => existsSync(join(out, "disabled")));
  const done = Date.now();
  await until("the stream to be cut", 6, () => isCut(here));
  console.log(`cut ${Date.now() - done} ms after the command, ${Date.now() - began} ms after the wish`);
  await here.goto(`${site}/`, { waitUntil: "domcontentloaded" });
  await here.waitForSelector("h1");
  if (!(await here.textContent("h1")).includes("disabled")) return await here.textContent("body");
});

await browser.close();
end();
