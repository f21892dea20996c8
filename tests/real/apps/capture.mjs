// An app that writes every byte that reaches it into a file, and answers pages, event streams and WebSockets. What the file
// must not contain is for the suite to say.
//   node capture.mjs PORT FILE NAME

import { appendFileSync } from "node:fs";
import { createServer } from "node:http";
import { WebSocketServer } from "ws";

const [port, file, name] = process.argv.slice(2);

const server = createServer((request, response) => {
  const url = new URL(request.url, "http://localhost");
  if (url.pathname === "/plant") {
    // Tries to set the gateway's cookies, for itself and for its neighbours.
    response.setHeader("set-cookie", [
      "gateway_session=planted; Path=/",
      "gateway_session=planted; Path=/; Domain=localhost",
      "gateway_pre=planted; Path=/; Domain=localhost",
      "own=1; Path=/; HttpOnly",
    ]);
  }
  if (url.pathname === "/api" && request.headers.origin) {
    // Lets a page on another port read it (Fetch, section 3.3).
    response.setHeader("access-control-allow-origin", request.headers.origin);
    response.setHeader("access-control-allow-credentials", "true");
  }
  response.setHeader("content-type", "text/html; charset=utf-8");
  response.end(`<!doctype html><title>${name}</title><h1>${name}</h1><p id="target">${url.search.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`)}</p>`);
});
const sockets = new WebSocketServer({ server });
sockets.on("connection", (socket) => {
  socket.on("error", () => {});
  socket.on("message", (data, binary) => socket.send(data, { binary }));
});
server.on("connection", (socket) => socket.on("data", (bytes) => appendFileSync(file, bytes)));
server.listen(Number(port), "127.0.0.1");
