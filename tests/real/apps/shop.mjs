// A shop for the inspector's suite: one item that is out of stock, a stream of events, a WebSocket, a packed answer, and text that would be
// markup or script where it is not escaped. node shop.mjs PORT

import { createServer } from "node:http";
import { gzipSync } from "node:zlib";
import { WebSocketServer } from "ws";

const HOSTILE = "</pre><script>window.attacked=1</script><img src=x onerror=window.attacked=1>";

const PAGE = `<!doctype html><title>Shop</title><h1>Shop</h1><p id="done"></p><script>
const order = (item) => fetch("/orders?access_token=s3cr3t-query&item=" + item, {
  method: "POST",
  headers: { "content-type": "application/json", authorization: "Bearer s3cr3t-bearer", "x-api-key": "s3cr3t-key" },
  body: JSON.stringify({ item, note: "é \\n two lines" }),
});
async function visit() {
  await order(7);
  await order(8);
  await fetch("/packed");
  await fetch("/hostile/" + encodeURIComponent(${JSON.stringify(HOSTILE).replaceAll("<", "\\u003c")}) + "?a=<b>", { headers: { "x-hostile": ${JSON.stringify(HOSTILE).replaceAll("<", "\\u003c")} } });
  const events = new EventSource("/events");
  await new Promise((resolve) => { events.onmessage = resolve; });
  events.close();
  window.socket = new WebSocket("ws://" + location.host + "/ws");
  window.say = (text) => new Promise((resolve) => { socket.onmessage = resolve; socket.send(text); });
  await new Promise((resolve) => { socket.onopen = resolve; });
  await say("hello-socket");
  document.querySelector("#done").textContent = "done";
}
visit();
</script>`;

const server = createServer(async (request, response) => {
  let body = "";
  for await (const piece of request) body += piece;
  const { pathname } = new URL(request.url, "http://shop");
  const send = (status, type, text, more = {}) => response.writeHead(status, { "content-type": type, "set-cookie": "cart=s3cr3t-cookie", ...more }).end(text);
  if (pathname === "/") return send(200, "text/html; charset=utf-8", PAGE);
  if (pathname === "/orders") {
    const { item } = JSON.parse(body);
    if (item === 7) return send(500, "application/json", '{"error":"out of stock","item":7}');
    return send(200, "application/json", JSON.stringify({ sold: item, for: request.headers["x-forwarded-for"] }));
  }
  if (pathname === "/packed") return send(200, "application/json", gzipSync('{"packed":[1,2,3]}'), { "content-encoding": "gzip" });
  if (pathname === "/events") return send(200, "text/event-stream", "event: price\ndata: 41\n\ndata: 42\n\n");
  if (pathname.startsWith("/hostile")) return send(200, "text/plain", HOSTILE, { "x-hostile": HOSTILE });
  send(404, "text/plain", "nothing here");
});
const sockets = new WebSocketServer({ server, path: "/ws", perMessageDeflate: false });
sockets.on("connection", (socket) => socket.on("message", (data) => socket.send(`echo ${data}`)));
server.listen(Number(process.argv[2]), "127.0.0.1");
