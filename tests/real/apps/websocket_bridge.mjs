// Takes WebSockets over HTTP/1.1 and opens each anew on a stream of one HTTP/2 connection (RFC 8441), for clients that cannot.
//   node websocket_bridge.mjs LISTEN GATEWAY_PORT AUTHORITY
// The user's token is read from REAL_USER_TOKEN. What follows the handshake is passed on as it is.

import { createHash } from "node:crypto";
import { connect } from "node:http2";
import { createServer } from "node:net";

const [listen, gateway, authority] = process.argv.slice(2);
const http2 = connect(`http://127.0.0.1:${gateway}`, { settings: { initialWindowSize: 1 << 20 } });
http2.on("error", (error) => console.log(`connection: ${error.message}`));
await new Promise((resolve) => http2.once("remoteSettings", resolve));
http2.setLocalWindowSize(4 << 20);
if (!http2.remoteSettings.enableConnectProtocol) throw new Error("the gateway does not announce extended CONNECT");

// Half-open: an end on one side is an end on the other, and no more.
const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
  let read = Buffer.alloc(0);
  socket.on("error", () => {});
  const handshake = (bytes) => {
    read = Buffer.concat([read, bytes]);
    const end = read.indexOf("\r\n\r\n");
    if (end < 0) return;
    socket.off("data", handshake);
    socket.pause();
    const lines = read.subarray(0, end).toString("latin1").split("\r\n");
    open(socket, lines[0].split(" ")[1], (name) => lines.find((line) => line.toLowerCase().startsWith(`${name}:`))?.replace(/^[^:]*:\s*/, ""), read.subarray(end + 4));
  };
  socket.on("data", handshake);
});

function open(socket, path, field, rest) {
  const headers = { ":method": "CONNECT", ":protocol": "websocket", ":scheme": "http", ":authority": authority, ":path": path, "sec-websocket-version": "13" };
  for (const name of ["sec-websocket-extensions", "sec-websocket-protocol"]) if (field(name)) headers[name] = field(name);
  if (process.env.REAL_USER_TOKEN) headers["gateway-authorization"] = `Bearer ${process.env.REAL_USER_TOKEN}`;
  const stream = http2.request(headers, { endStream: false });
  stream.on("error", () => socket.destroy());
  stream.on("response", (answer) => {
    if (answer[":status"] !== 200) return socket.end(`HTTP/1.1 ${answer[":status"]} Refused\r\ncontent-length: 0\r\nconnection: close\r\n\r\n`);
    const accept = createHash("sha1").update(`${field("sec-websocket-key")}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest("base64");
    let head = `HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-accept: ${accept}\r\n`;
    for (const name of ["sec-websocket-extensions", "sec-websocket-protocol"]) if (answer[name]) head += `${name}: ${answer[name]}\r\n`;
    socket.write(`${head}\r\n`);
    stream.pipe(socket);
    if (rest.length > 0) stream.write(rest);
    socket.pipe(stream);
  });
  socket.on("close", () => stream.close());
}

server.listen(Number(listen), "127.0.0.1");
