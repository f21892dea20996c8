#!/usr/bin/env bash
# What somebody sees who tries it for the first time: `gateway demo`, the link that it prints, the four cards of the sample app,
# Ctrl-C. DEMO_URL=http://… checks the page of a sample app that runs already.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"

if [ -n "$DIRECT" ]; then
  [ -n "${DEMO_URL:-}" ] || { echo "demo: nothing to check without the gateway unless DEMO_URL is set"; finish; }
  touch "$OUT/go-on"
  helper page 120 node "$REAL/suites/demo.mjs" --link "$DEMO_URL" --out "$OUT" --direct 1
  finish
fi

[ -x "$REAL_GATEWAY" ] || give_up "build first: cargo build --release ($REAL_GATEWAY is missing)"
choose_ports
cd "$OUT" || exit 1
# run_demo NAME : on a terminal, as a person would.
run_demo() { spawn "$1" env "${GATEWAY_ENV[@]}" python3 "$APPS/pty_run.py" "$REAL_GATEWAY" demo; }
has_link() { [ -n "$(sign_in_link demo)" ]; }

began=$(now_ms)
run_demo demo
until_ok 15 has_link >/dev/null || give_up "no link within 15 s: $(tail -n 1 "$OUT/demo.log")"
printf 'link after %s ms\n' "$(($(now_ms) - began))" >>"$OUT/times.txt"
ok "a link is printed"
link=$(sign_in_link demo)
same "it is one link" 1 "$(sed 's/\x1b\[[0-9;]*m//g' "$OUT/demo.log" | grep -oE '/\.gateway/sign-in\?code=[^[:space:]]+' | sort -u | wc -l)"

# The page stays open while Ctrl-C is pressed: open streams may not hold the end up.
spawn page node "$REAL/suites/demo.mjs" --link "$link" --out "$OUT"
while alive page && [ ! -e "$OUT/cards-done" ]; do sleep 0.1; done

# A second one on the same ports, while the first runs.
run_demo taken
if ends_within 10 taken; then
  same "a taken port ends the second demo with status 1" 1 "$STATUS"
  port=${link#*localhost:}
  port=${port%%/*}
  check "its message names the port" grep -qE "\b($port|$PUBLIC|$AGENTS|$ADMIN)\b" "$OUT/taken.log"
  check "its message names the flag to change it" grep -qE -- '--[a-z]' "$OUT/taken.log"
  check "the first demo goes on" alive demo
else
  fail "a taken port does not end the second demo"
  stop taken
fi

began=$(now_ms)
signal USR1 demo
if ends_within 5 demo; then
  took=$(($(now_ms) - began))
  same "Ctrl-C ends it with status 0" 0 "$STATUS"
  check "within 3 s, with a page open (took $took ms)" test "$took" -lt 3000
else
  fail "Ctrl-C does not end it within 5 s"
fi
touch "$OUT/go-on"
collect page 60
check "it leaves no panic behind" sh -c "! grep -n panicked '$OUT/demo.log'"
finish
