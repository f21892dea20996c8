// One stream of each kind through a gateway, and the apps at their other ends. Each stream says when it ended, at the user's end
// and at the app's, and how.

import { spawn } from "node:child_process";
import { createServer, request } from "node:http";
import { connect } from "node:http2";
import { createServer as createTcpServer } from "node:net";
import { WebSocket, WebSocketServer } from "ws";

// How often each end of each stream says something.
const PULSE_MS = 500;

const now = () => performance.now();
const pulses = new Set();
setInterval(() => {
  for (const pulse of pulses) pulse();
}, PULSE_MS).unref();

// A stream's life: it is up when something came through it, over when both of its ends are.
class Stream {
  constructor(kind, ends) {
    this.kind = kind;
    this.up = new Promise((resolve, reject) => Object.assign(this, { hear: resolve, fail: reject }));
    this.up.catch(() => {});
    this.heard = 0;
    this.told = "";
    this.left = ends;
    this.over = new Promise((resolve) => (this.resolve = resolve));
  }
  alive() {
    this.heard = now();
    this.hear();
  }
  // One end is over.
  end(end, told = "") {
    if (!this.left.delete(end)) return;
    this.told ||= told;
    this.fail(new Error(`${this.kind} ended at the ${end}'s end: ${told}`));
    if (this.left.size === 0) this.resolve((this.endedAt = now()));
  }
  // Says something each PULSE_MS, as long as `end` lives.
  pulse(end, say) {
    const pulse = () => (this.left.has(end) ? say() : pulses.delete(pulse));
    pulses.add(pulse);
  }
}

const streams = new Map(); // by the number that the app hears
function stream(kind, ends = ["user", "app"]) {
  const made = new Stream(kind, new Set(ends));
  made.number = streams.size + 1; // none is 0, which is what a path without a number reads as
  streams.set(made.number, made);
  return made;
}

// --- the apps ---------------------------------------------------------------------------------------------------------------

function served(path) {
  return streams.get(Number(path.split("/").pop()));
}

export async function startApps(appPort, tcpPort) {
  const app = createServer({ requestTimeout: 0 }, (asked, answer) => {
    const stream = served(asked.url);
    if (!stream) return answer.writeHead(404).end();
    answer.on("error", () => {});
    answer.on("close", () => stream.end("app"));
    if (asked.method === "POST") return asked.on("error", () => {}).on("data", () => stream.alive());
    const download = stream.kind === "download";
    answer.writeHead(200, download ? { "content-type": "application/octet-stream", "content-length": 1 << 30 } : { "content-type": "text/event-stream" });
    const piece = download ? Buffer.alloc(16 * 1024) : "data: tick\n\n";
    stream.pulse("app", () => answer.write(piece));
  });
  const sockets = new WebSocketServer({ server: app, perMessageDeflate: false });
  sockets.on("connection", (socket, asked) => {
    const stream = served(asked.url);
    socket.on("error", () => {}).on("close", () => stream.end("app"));
    socket.on("message", (text) => socket.send(text));
  });
  const tcp = createTcpServer((socket) => {
    socket.on("error", () => {});
    socket.once("data", (line) => {
      const stream = served(line.toString().trim());
      socket.on("close", () => stream.end("app"));
      stream.pulse("app", () => socket.write("tick\n"));
    });
  });
  await Promise.all([[app, appPort], [tcp, tcpPort]].map(([server, port]) => new Promise((resolve) => server.listen(port, "127.0.0.1", 1024, resolve))));
}

// --- the users' ends --------------------------------------------------------------------------------------------------------

// An answer that refuses, in words.
const refusal = (status, headers) => `${status} ${headers["gateway-error"] ?? ""}`.trim();

// The close frame at the end of what came, in words (RFC 6455, section 5.5.1).
function closeOf(bytes) {
  for (let at = Math.max(0, bytes.length - 127); at < bytes.length; at += 1) {
    if (bytes[at] === 0x88 && at + 2 + bytes[at + 1] === bytes.length) return `${bytes.readUInt16BE(at + 2)} ${bytes.subarray(at + 4)}`;
  }
  return "no close frame";
}

// A text message of a client (RFC 6455, section 5.2), masked with zeros.
const MESSAGE = Buffer.concat([Buffer.from([0x81, 0x84, 0, 0, 0, 0]), Buffer.from("ping")]);
// A message of gRPC: not compressed, four bytes.
const CALL = Buffer.from([0, 0, 0, 0, 4, 0x70, 0x69, 0x6e, 0x67]);

export class Opener {
  constructor({ gatewayPort, appPort, tcpPort, grpcPort, gateway }) {
    Object.assign(this, { gatewayPort, appPort, tcpPort, grpcPort, gateway });
    this.shared = [];
    this.count = 0;
  }

  hostOf(port, workspace) {
    return `${port}-${workspace}.localhost:${this.gatewayPort}`;
  }

  // Several people's streams share a connection, as behind a proxy of theirs: what cuts one must leave the others.
  http2() {
    if (this.count++ % 12 === 0) {
      const session = connect(`http://127.0.0.1:${this.gatewayPort}`);
      session.on("error", () => {});
      this.shared.push({ session, ready: new Promise((resolve) => session.once("remoteSettings", resolve)) });
    }
    return this.shared.at(-1);
  }

  "WebSocket over HTTP/1.1"({ workspace, fields }) {
    const made = stream("websocket");
    const headers = { ...fields, host: this.hostOf(this.appPort, workspace) };
    const socket = new WebSocket(`ws://127.0.0.1:${this.gatewayPort}/${made.number}`, { headers, perMessageDeflate: false });
    socket.on("open", () => made.pulse("user", () => socket.readyState === WebSocket.OPEN && socket.send("ping")));
    socket.on("message", () => made.alive());
    socket.on("error", (error) => made.end("user", error.message));
    socket.on("unexpected-response", (_, answer) => made.end("user", refusal(answer.statusCode, answer.headers)));
    socket.on("close", (code, reason) => made.end("user", `${code} ${reason}`));
    return made;
  }

  "WebSocket over HTTP/2"({ workspace, fields }) {
    const made = stream("websocket");
    const { session, ready } = this.http2();
    ready.then(() => {
      const call = session.request({ ":method": "CONNECT", ":protocol": "websocket", ":scheme": "http", ":authority": this.hostOf(this.appPort, workspace), ":path": `/${made.number}`, "sec-websocket-version": "13", ...fields }, { endStream: false });
      let last = Buffer.alloc(0);
      call.on("response", (answer) => {
        if (answer[":status"] !== 200) return made.end("user", refusal(answer[":status"], answer));
        made.pulse("user", () => call.writable && call.write(MESSAGE));
      });
      call.on("data", (bytes) => {
        last = Buffer.concat([last, bytes]).subarray(-256);
        made.alive();
      });
      call.on("error", (error) => made.end("user", error.message));
      call.on("end", () => made.end("user", closeOf(last)));
      call.on("close", () => made.end("user", closeOf(last)));
    });
    return made;
  }

  get(kind, { workspace, fields }) {
    const made = stream(kind);
    const headers = { ...fields, host: this.hostOf(this.appPort, workspace) };
    const asked = request({ host: "127.0.0.1", port: this.gatewayPort, path: `/${made.number}`, agent: false, headers });
    asked.on("error", (error) => made.end("user", error.message));
    asked.on("response", (answer) => {
      if (answer.statusCode !== 200) return made.end("user", refusal(answer.statusCode, answer.headers));
      answer.on("data", () => made.alive());
      answer.on("error", () => {});
      answer.on("close", () => made.end("user", answer.complete ? "the body looks whole" : "the body breaks off"));
    });
    asked.end();
    return made;
  }

  "event stream"(who) {
    return this.get("events", who);
  }

  download(who) {
    return this.get("download", who);
  }

  upload({ workspace, fields }) {
    const made = stream("upload");
    const headers = { ...fields, host: this.hostOf(this.appPort, workspace), "transfer-encoding": "chunked" };
    const asked = request({ host: "127.0.0.1", port: this.gatewayPort, path: `/${made.number}`, method: "POST", agent: false, headers });
    asked.on("error", (error) => made.end("user", error.message));
    asked.on("response", (answer) => {
      made.end("user", refusal(answer.statusCode, answer.headers));
      answer.on("error", () => {}).resume();
      asked.destroy();
    });
    const piece = Buffer.alloc(16 * 1024);
    made.pulse("user", () => asked.write(piece));
    return made;
  }

  gRPC({ workspace, fields }) {
    // The server is another program, and does not tell.
    const made = stream("grpc", ["user"]);
    const { session, ready } = this.http2();
    ready.then(() => {
      const call = session.request({ ":method": "POST", ":scheme": "http", ":authority": this.hostOf(this.grpcPort, workspace), ":path": "/real.Parts/Echo", "content-type": "application/grpc", te: "trailers", ...fields }, { endStream: false });
      call.on("response", (answer) => answer["gateway-error"] && made.end("user", refusal(answer[":status"], answer)));
      call.on("data", () => made.alive());
      call.on("error", (error) => made.end("user", error.message));
      call.on("close", () => made.end("user", "closed"));
      made.pulse("user", () => call.writable && call.write(CALL));
    });
    return made;
  }

  "raw TCP (gateway forward)"({ workspace, tokenFile, home }) {
    const made = stream("tcp");
    const child = spawn(this.gateway, ["forward", "--stdio", workspace, String(this.tcpPort)], {
      env: { PATH: process.env.PATH, HOME: home, NO_COLOR: "1", GATEWAY_URL: `http://localhost:${this.gatewayPort}`, GATEWAY_TOKEN_FILE: tokenFile },
    });
    let said = "";
    child.stderr.on("data", (text) => (said += text));
    child.stdout.on("data", () => made.alive());
    child.stdin.on("error", () => {});
    child.stdin.write(`${made.number}\n`);
    child.on("close", (status) => made.end("user", `${said.trim()} (status ${status})`));
    made.child = child;
    return made;
  }

  close() {
    for (const { session } of this.shared) session.destroy();
    for (const { child } of streams.values()) child?.kill();
  }
}
