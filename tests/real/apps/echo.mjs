// A small app for the suites that break things: text, a slow answer, an endless stream, the sum of an upload, a WebSocket echo.
//   node echo.mjs PORT [NAME]

import { createHash } from "node:crypto";
import { createServer } from "node:http";
import { WebSocketServer } from "ws";

const [port, name = "echo"] = process.argv.slice(2);

const server = createServer((request, response) => {
  const url = new URL(request.url, "http://localhost");
  if (url.pathname === "/slow") {
    setTimeout(() => response.end(`${name} slow\n`), Number(url.searchParams.get("ms") ?? 1000));
  } else if (url.pathname === "/ticks") {
    response.writeHead(200, { "content-type": "text/event-stream" });
    let tick = 0;
    const timer = setInterval(() => response.write(`data: ${tick++}\n\n`), 100);
    response.on("close", () => clearInterval(timer));
  } else if (url.pathname === "/sum") {
    const sum = createHash("sha256");
    request.on("data", (piece) => sum.update(piece));
    request.on("end", () => response.end(`${sum.digest("hex")}  -\n`));
  } else if (url.pathname === "/who") {
    response.end(`${request.headers["x-forwarded-for"] ?? "nobody"}\n`);
  } else if (url.pathname === "/traced") {
    response.end(`${request.headers.traceparent ?? "none"}\n`);
  } else {
    response.end(`${name}\n`);
  }
});

const sockets = new WebSocketServer({ server });
sockets.on("connection", (socket) => {
  socket.on("error", () => {});
  socket.on("message", (data, binary) => socket.send(data, { binary }));
});
server.listen(Number(port), "127.0.0.1");
