#!/usr/bin/env bash
# Files through the tunnel, byte for byte: `python3 -m http.server` and nginx behind the agent, curl in front, over HTTP/1.1
# and HTTP/2. Every answer is compared with the one that the server gives without the tunnel.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"

BIG=200000003 # bytes; not a multiple of anything that a buffer could be
# For one request: three large files at a time take a minute on a slow machine.
MAX_TIME=300
TREE=$OUT/tree
mkdir -p "$TREE/upload" "$OUT/nginx" "$OUT/answers"
python3 "$APPS/make_tree.py" "$TREE" >"$OUT/targets.txt"
head -c "$BIG" /dev/urandom >"$TREE/big.bin"
touch -d '2024-02-29T12:00:00Z' "$TREE/big.bin"
big_sum=$(sha256sum <"$TREE/big.bin")

python_port=$(free_port)
spawn python python3 -u -m http.server --bind 127.0.0.1 --protocol HTTP/1.1 --directory "$TREE" "$python_port"
wait_port python "$python_port"
nginx_port=$(free_port)
nginx_user
sed -e "s|@USER@|$NGINX_USER|; s|@DIR@|$OUT/nginx|; s|@PORT@|$nginx_port|; s|@TREE@|$TREE|" "$APPS/nginx-files.conf" >"$OUT/nginx.conf"
spawn nginx nginx -p "$OUT/nginx" -e stderr -c "$OUT/nginx.conf"
wait_port nginx "$nginx_port"
start_gateway
start_agent

# answer FILE CURL-ARGUMENTS… : status, headers and checksum of the body, as lines that can be compared. Left out is what belongs to
# one connection or one moment.
answer() {
  local file=$1
  shift
  : >"$OUT/body"
  : >"$OUT/head"
  curl -sS --path-as-is --globoff --max-time "$MAX_TIME" -o "$OUT/body" -D "$OUT/head" "$@" >/dev/null 2>"$file" || echo "curl $?" >>"$file"
  # What curl writes for --head is the head once more.
  [[ " $* " == *" --head "* ]] && : >"$OUT/body"
  {
    tr -d '\r' <"$OUT/head" | sed -n '1s/^HTTP[^ ]* \([0-9]*\).*/status \1/p'
    tr -d '\r' <"$OUT/head" | sed -n '2,$p' | grep -viE '^(connection|keep-alive|transfer-encoding|date):|^$' |
      sed -E 's/^([^:]+):/\L\1:/' | sort
    sha256sum <"$OUT/body"
  } >>"$file"
  rm -f "$OUT/body" "$OUT/head"
}

token() { printf 'gateway-authorization: Bearer %s' "${USER_TOKEN:-none}"; }

# compare TEXT PORT PATH CURL-ARGUMENTS… : the same question directly and through the tunnel, over both versions of HTTP.
compare() {
  local text=$1 port=$2 path=$3 version
  shift 3
  answer "$OUT/answers/direct" "$@" "http://127.0.0.1:$port$path"
  for version in http1.1 http2-prior-knowledge; do
    [ -n "$DIRECT" ] && [ "$version" != http1.1 ] && continue
    answer "$OUT/answers/tunnel" "$@" -H "$(token)" "--$version" "http://$(host_of "$port")$path"
    if difference=$(diff "$OUT/answers/direct" "$OUT/answers/tunnel"); then
      ok "$text, $version"
    else
      fail "$text, $version: $(tr '\n' ' ' <<<"$difference" | cut -c 1-300)"
    fi
  done
}

# --- every target, as one check for each server and version -----------------------------------------------------------
# targets_of NAME : the request targets in the log of http.server since the last call.
targets_of() {
  sed -n "${log_from:-1},\$p" "$OUT/python.log" | grep -oE '"(GET|HEAD) .* HTTP/1\.[01]" [0-9]+' >"$1"
  log_from=$(($(wc -l <"$OUT/python.log") + 1))
}

every_target() {
  local server=$1 port=$2 version=$3 number=0 target base
  mkdir -p "$OUT/answers/$server-$version"
  if [ "$version" = direct ]; then base=http://127.0.0.1:$port; else base=http://$(host_of "$port"); fi
  while IFS= read -r target; do
    number=$((number + 1))
    case $version in
      direct) answer "$OUT/answers/$server-$version/$number" "$base$target" ;;
      *) answer "$OUT/answers/$server-$version/$number" -H "$(token)" "--$version" "$base$target" ;;
    esac
  done <"$OUT/targets.txt"
}

for server in python nginx; do
  port_name=${server}_port
  every_target "$server" "${!port_name}" direct
  [ "$server" = python ] && targets_of "$OUT/answers/targets-direct"
  for version in http1.1 http2-prior-knowledge; do
    [ -n "$DIRECT" ] && [ "$version" != http1.1 ] && continue
    every_target "$server" "${!port_name}" "$version"
    differing=$(diff -rq "$OUT/answers/$server-direct" "$OUT/answers/$server-$version" | wc -l)
    if [ "$differing" = 0 ]; then
      ok "$server: $(wc -l <"$OUT/targets.txt") odd targets are answered as without the tunnel, $version"
    else
      first=$(diff -rq "$OUT/answers/$server-direct" "$OUT/answers/$server-$version" | grep -oE '[0-9]+ (and|differ)' | head -n 1 | cut -d ' ' -f 1)
      fail "$server, $version: $differing targets differ, first $(sed -n "${first}p" "$OUT/targets.txt" | cut -c 1-80): $(diff "$OUT/answers/$server-direct/$first" "$OUT/answers/$server-$version/$first" | tr '\n' ' ' | cut -c 1-200)"
    fi
    if [ "$server" = python ]; then
      targets_of "$OUT/answers/targets-$version"
      check "the server sees the very same request targets, $version" diff "$OUT/answers/targets-direct" "$OUT/answers/targets-$version"
    fi
  done
done

# --- methods, ranges, conditions --------------------------------------------------------------------------------------
compare "HEAD of a large file" "$python_port" /big.bin --head
compare "HEAD of a directory" "$python_port" /sub/ --head
compare "a method that the server does not know" "$python_port" /plain.txt -X BREW
compare "If-Modified-Since gives 304" "$python_port" /plain.txt -H 'If-Modified-Since: Wed, 01 Jan 2025 00:00:00 GMT'
compare "an older If-Modified-Since gives the file" "$python_port" /plain.txt -H 'If-Modified-Since: Sat, 01 Jan 2000 00:00:00 GMT'
compare "If-Modified-Since gives 304 (nginx)" "$nginx_port" /big.bin -H 'If-Modified-Since: Wed, 01 Jan 2025 00:00:00 GMT'
compare "a range in the middle" "$nginx_port" /big.bin -H 'Range: bytes=100000001-101000000'
compare "the last bytes" "$nginx_port" /big.bin -H 'Range: bytes=-4097'
compare "one byte" "$nginx_port" /big.bin -H 'Range: bytes=0-0'
compare "a range beyond the end gives 416" "$nginx_port" /big.bin -H 'Range: bytes=900000000-'
compare "If-Range with another date gives it all" "$nginx_port" /page.html -H 'Range: bytes=0-9' -H 'If-Range: Sat, 01 Jan 2000 00:00:00 GMT'
compare "a compressed body stays compressed" "$nginx_port" /literal%2520space.txt -H 'Accept-Encoding: gzip'
compare "OPTIONS" "$nginx_port" /plain.txt -X OPTIONS
etag=$(curl -sI "http://127.0.0.1:$nginx_port/big.bin" | tr -d '\r' | sed -n 's/^ETag: //Ip')
compare "If-None-Match gives 304" "$nginx_port" /big.bin -H "If-None-Match: $etag"

several=$(visit -H 'Range: bytes=0-99,1000-1999' "http://$(host_of "$nginx_port")/big.bin" | wc -c)
same "several ranges in one answer" "$(curl -s -H 'Range: bytes=0-99,1000-1999' "http://127.0.0.1:$nginx_port/big.bin" | wc -c)" "$several"

# --- the large file ---------------------------------------------------------------------------------------------------
for version in http1.1 http2-prior-knowledge; do
  [ -n "$DIRECT" ] && [ "$version" != http1.1 ] && continue
  for server in python nginx; do
    port_name=${server}_port
    began=$(now_ms)
    got=$(visit "--$version" "http://$(host_of "${!port_name}")/big.bin" | sha256sum)
    printf '%s %s: %s bytes in %s ms\n' "$server" "$version" "$BIG" "$(($(now_ms) - began))" >>"$OUT/speed.txt"
    same "200 MB from $server are the same bytes, $version" "$big_sum" "$got"
  done
done

visit "http://$(host_of "$nginx_port")/big.bin" | sha256sum >"$OUT/sum.1" &
downloads=($!)
visit "http://$(host_of "$nginx_port")/big.bin" | sha256sum >"$OUT/sum.2" &
downloads+=($!)
visit "http://$(host_of "$python_port")/big.bin" | sha256sum >"$OUT/sum.3" &
downloads+=($!)
# small_first : a small file comes, and none of the large ones is through by then.
small_first() { visit -f -o /dev/null "http://$(host_of "$nginx_port")/plain.txt" && [ -z "$(cat "$OUT"/sum.[123])" ]; }
began=$(now_ms)
check "a small file comes while three large ones are on their way" small_first
printf 'a small file beside three large ones: %s ms\n' "$(($(now_ms) - began))" >>"$OUT/speed.txt"
wait "${downloads[@]}"
same "three at a time are the same bytes" "$big_sum $big_sum $big_sum" "$(cat "$OUT"/sum.[123] | tr '\n' ' ' | sed 's/ $//')"

visit -o /dev/null --limit-rate 2M --max-time 1 "http://$(host_of "$nginx_port")/big.bin" 2>/dev/null
same "a visitor who leaves early harms nobody" 200 "$(visit -o /dev/null -w '%{http_code}' "http://$(host_of "$nginx_port")/plain.txt")"

# --- uploads ----------------------------------------------------------------------------------------------------------
head -c 100000007 "$TREE/big.bin" >"$OUT/upload.bin"
upload_sum=$(sha256sum <"$OUT/upload.bin")
for version in http1.1 http2-prior-knowledge; do
  [ -n "$DIRECT" ] && [ "$version" != http1.1 ] && continue
  began=$(now_ms)
  visit -o /dev/null "--$version" -T "$OUT/upload.bin" "http://$(host_of "$nginx_port")/upload/sized-$version"
  printf 'upload %s: 100000007 bytes in %s ms\n' "$version" "$(($(now_ms) - began))" >>"$OUT/speed.txt"
  same "an upload of 100 MB arrives whole, $version" "$upload_sum" "$(sha256sum <"$TREE/upload/sized-$version")"
  visit -o /dev/null "--$version" -T - "http://$(host_of "$nginx_port")/upload/unsized-$version" <"$OUT/upload.bin"
  same "an upload of unknown length arrives whole, $version" "$upload_sum" "$(sha256sum <"$TREE/upload/unsized-$version")"
done

if [ -z "$DIRECT" ]; then
  same "a closed port is named" port_closed "$(failure_of "$(host_of 1)" /)"
  same "an unknown workspace is named" no_such_host "$(failure_of "80-nobody.localhost:$PUBLIC" /)"
  # As two kinds of scrapers ask; promtool reads the older text only.
  check "Prometheus' own checker finds nothing wrong with the metrics" \
    sh -c "curl -sf 'http://127.0.0.1:$ADMIN/metrics' | promtool check metrics"
  check "who asks for OpenMetrics gets it" \
    has_text '^# EOF$' curl -sf -H 'accept: application/openmetrics-text;version=1.0.0' "http://127.0.0.1:$ADMIN/metrics"
  same "a stranger is told to sign in" 401 "$(curl -s -o /dev/null -w '%{http_code}' "http://$(host_of "$nginx_port")/plain.txt")"
fi
rm -f "$OUT/upload.bin" "$TREE/big.bin" "$TREE"/upload/*
quiet_logs
finish
