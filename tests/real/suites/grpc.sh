#!/usr/bin/env bash
# gRPC through the tunnel: a grpcio client talks to the gateway (HTTP/2 without TLS), a grpcio server is behind the agent on a
# port with `protocol=h2`. Whatever a client sees must be what it sees without the tunnel.
source "$(dirname -- "${BASH_SOURCE[0]}")/../lib/common.sh"

[ -x "$PYTHON" ] || give_up "grpcio is missing: run tests/real/install.sh"

port=$(free_port)
spawn server "$PYTHON" "$APPS/grpc_server.py" "$port"
wait_port server "$port"
start_gateway
start_agent --port "$port:protocol=h2"

if [ -n "$DIRECT" ]; then
  helper client 120 "$PYTHON" "$APPS/grpc_client.py" --target "127.0.0.1:$port"
else
  export REAL_USER_TOKEN=$USER_TOKEN
  helper client 120 "$PYTHON" "$APPS/grpc_client.py" --target "127.0.0.1:$PUBLIC" --authority "$(host_of "$port")" \
    --token-env REAL_USER_TOKEN --direct "127.0.0.1:$port"
fi
quiet_logs
finish
