#!/usr/bin/env bash
# Instructions and system calls of the gateway for each request of 128 bytes, over HTTP/1.1, over HTTP/2, and on a connection of its own:
# the difference between a run with many requests and one with few. Neither depends on the machine's load, so both have bounds: a
# change that adds 2 % names it in its commit, and moves the bound. A part of .ci/nightly, for its tools: valgrind and strace.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"

for tool in valgrind strace; do command -v "$tool" >/dev/null || give_up "$tool is missing: install the packages valgrind and strace"; done

FEW=200 MANY=1700
# Most for each request: instructions, and system calls that do something, in hundredths.
declare -A INSTRUCTIONS=([http1]=68200 [http2]=88900 [connection]=115900)
# Over HTTP/2, head and body of an answer go out in one call or in two, as they come. How many calls a head takes to be read depends on
# the machine: one program took 3.81 on one and 4.08 on another.
declare -A CALLS=([http1]=416 [http2]=660 [connection]=1950)

PROGRAM=$REAL_GATEWAY
# traced COMMAND… : from now on the gateway serves under this.
traced() {
  printf '#!/bin/sh\n[ "$1" = serve ] || exec "%s" "$@"\nexec %s "%s" "$@"\n' "$PROGRAM" "$*" "$PROGRAM" >"$OUT/traced"
  chmod +x "$OUT/traced"
  REAL_GATEWAY=$OUT/traced
}

APP=$(free_port)
cat >"$OUT/app.mjs" <<'JS'
import { createServer } from "node:net";
const answer = Buffer.from(`HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 128\r\n\r\n${"x".repeat(128)}`);
createServer((socket) => {
  socket.setNoDelay(true).on("error", () => {});
  // A head comes whole, and the next one after the answer.
  socket.on("data", () => socket.write(answer));
}).listen(Number(process.argv[2]), "127.0.0.1");
JS
# One request after another on one connection: some versions of curl fail to do that with HTTP/2 and prior knowledge.
cat >"$OUT/http2.mjs" <<'JS'
import { connect } from "node:http2";
const [authority, port, count, token] = process.argv.slice(2);
const session = connect(`http://127.0.0.1:${port}`);
for (let at = 0; at < Number(count); at += 1) {
  const call = session.request({ ":authority": authority, ":path": `/${at}`, "gateway-authorization": `Bearer ${token}` });
  call.resume().on("response", (answer) => console.log(answer[":status"]));
  await new Promise((resolve) => call.on("close", resolve));
}
session.close();
JS
spawn app node "$OUT/app.mjs" "$APP"
wait_port app "$APP"

# ask KIND URL COUNT : prints the status of each answer.
ask() {
  case $1 in
    http1) visit -o /dev/null -w '%{http_code}\n' --http1.1 "$2/[1-$3]" ;;
    connection) visit -o /dev/null -w '%{http_code}\n' --http1.1 -H 'connection: close' "$2/[1-$3]" ;;
    http2) node "$OUT/http2.mjs" "${2#http://}" "$PUBLIC" "$3" "$USER_TOKEN" ;;
  esac
}

# run KIND COUNT : serves so many requests, and ends the gateway.
run() {
  local good
  rm -f "$OUT"/callgrind.* "$OUT/strace"
  start_gateway
  user_token
  start_agent
  good=$(ask "$1" "http://$(host_of "$APP")" "$2" | grep -c 200)
  [ "$good" = "$2" ] || fail "$1: $good of $2 requests were answered"
  stop agent
  signal TERM gateway
  ends_within 30 gateway || fail "$1: the gateway does not stop"
  stop gateway
}

# Without the threads of SQLite, and without what each thread does every ten seconds to give memory back: neither comes from requests.
instructions() {
  awk 'FNR == 1 { if (NR > 1 && !database) sum += own - given; own = given = database = 0; collect = "" }
    /^(summary|totals):/ { own = $2 }
    /sqlite3VdbeExec/ { database = 1 }
    /^c?fn=/ { match($0, /\([0-9]+\)/); id = substr($0, RSTART, RLENGTH); if (/memory::collect/) collect = id; if (/^cfn=/) called = id }
    is_call { if (called == collect) given += $2; is_call = 0 }
    /^calls=/ { is_call = 1 }
    END { if (!database) sum += own - given; print sum }' "$OUT"/callgrind.*-*
}
calls() {
  until_ok 10 grep -q total "$OUT/strace" || return 1
  # How many waits, wakeups of threads and readings of nothing there are depends on the load.
  awk '$4 ~ /^[0-9]+$/ && $NF !~ /^(epoll_wait|futex|total)$/ { sum += $4 - (NF == 6 ? $5 : 0) } END { print sum }' "$OUT/strace"
}

# least READ KIND COUNT : sets LEAST to the cheapest of three runs. A busy machine only ever adds: it polls tasks once more.
least() {
  local one
  LEAST=
  for _ in 1 2 3; do
    run "$2" "$3"
    one=$("$1") || continue
    [ -n "$LEAST" ] && [ "$LEAST" -le "$one" ] || LEAST=$one
  done
}

# within NAME READ KIND MOST : what one request costs, in hundredths, against its bound.
within() {
  local few many each
  least "$2" "$3" "$FEW"
  few=${LEAST:-0}
  least "$2" "$3" "$MANY"
  many=${LEAST:-0}
  echo "$3, $1: $few for $FEW, $many for $MANY" >>"$OUT/table.txt"
  each=$((100 * (many - few) / (MANY - FEW)))
  check "$3: $(hundredths "$each") $1 for each request, at most $(hundredths "$4")" [ "$each" -gt 0 -a "$each" -le "$4" ]
}
hundredths() { printf '%d.%02d' $(($1 / 100)) $(($1 % 100)); }

for kind in ${KINDS:-http1 http2 connection}; do
  traced valgrind --tool=callgrind --separate-threads=yes "--callgrind-out-file=$OUT/callgrind.%p"
  within instructions instructions "$kind" $((100 * INSTRUCTIONS[$kind]))
  traced strace -DD -f -c -o "$OUT/strace"
  within 'system calls' calls "$kind" "${CALLS[$kind]}"
done
cat "$OUT/table.txt"
finish
