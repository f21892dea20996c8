// A browser as far as signing in needs one: cookies for each host, redirects that are followed one by one, the forms of the
// provider. All hosts are this machine.

import { Agent, request } from "node:http";

// Gives up what has waited before the gateway closes it after 30 s: see steady_load.mjs.
const agent = new Agent({ keepAlive: true, maxSockets: 8, timeout: 20_000 });
const VISIT = { accept: "text/html", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document", "sec-fetch-site": "none" };

// Asks once; `url` says which host, and this machine answers.
export function ask(url, { method = "GET", headers = {}, body = "" } = {}) {
  const { host, port, pathname, search } = new URL(url);
  return new Promise((resolve, reject) => {
    const asked = request({ host: "127.0.0.1", port, path: pathname + search, method, agent, headers: { host, ...headers, ...(body && { "content-length": Buffer.byteLength(body) }) } });
    asked.on("error", reject);
    asked.on("response", (answer) => {
      const parts = [];
      answer.on("data", (part) => parts.push(part)).on("error", reject);
      answer.on("end", () => resolve({ status: answer.statusCode, headers: answer.headers, text: Buffer.concat(parts).toString() }));
    });
    asked.end(body);
  });
}

export class Visitor {
  constructor(kept = {}) {
    this.cookies = kept; // by host
  }

  // The cookies of one host as a field.
  cookie(host) {
    return Object.entries(this.cookies[host] ?? {}).map(([name, value]) => `${name}=${value}`).join("; ");
  }

  async visit(url, more = {}) {
    const { host } = new URL(url);
    const cookie = this.cookie(host);
    const answer = await ask(url, { ...more, headers: { ...VISIT, ...more.headers, ...(cookie && { cookie }) } });
    for (const line of answer.headers["set-cookie"] ?? []) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(line);
      const kept = (this.cookies[host] ??= {});
      if (value === "" || /max-age=0|expires=Thu, 01 Jan 1970/i.test(line)) delete kept[name];
      else kept[name] = value;
    }
    return answer;
  }

  // Goes on until a page is there, and fills in the provider's forms as `name`.
  async open(url, name) {
    for (let step = 0; step < 30; step += 1) {
      let answer = await this.visit(url);
      const [, prompt] = /name="prompt" value="(\w+)"/.exec(answer.text) ?? [];
      if (answer.status === 200 && prompt) {
        const body = new URLSearchParams({ prompt, login: name, password: "any" }).toString();
        const headers = { "content-type": "application/x-www-form-urlencoded", origin: new URL(url).origin, "sec-fetch-site": "same-origin" };
        answer = await this.visit(url, { method: "POST", headers, body });
      }
      const { location } = answer.headers;
      if (!location) return answer;
      url = new URL(location, url).href;
    }
    throw new Error(`no end of redirects at ${url}`);
  }
}
