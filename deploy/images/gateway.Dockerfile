# The gateway. From the top of the repository:
#
#   docker build --file deploy/images/gateway.Dockerfile --tag gateway:0.1.0 .
#
# It runs as a user without a name, and needs one folder that it may write to: /var/lib/gateway, for the database and its key. In
# the container it listens on all addresses, since the published ports decide who reaches it; keep 8082 (health and
# metrics) inside. Everything else of the configuration comes from /etc/gateway/gateway.toml or the environment.
ARG BUILD_IMAGE=rust:1.95.0-slim-trixie
ARG RUN_IMAGE=debian:13.1-slim

FROM ${BUILD_IMAGE} AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends cmake g++ make \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN cargo build --release --locked --package gateway --bin gateway

FROM ${RUN_IMAGE}
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && install --directory --owner 65532 --group 65532 --mode 0700 /var/lib/gateway \
    && install --directory /etc/gateway \
    && touch /etc/gateway/gateway.toml
COPY --from=build /src/target/release/gateway /usr/local/bin/gateway
ENV GATEWAY_LISTEN__PUBLIC=0.0.0.0:8080 \
    GATEWAY_LISTEN__AGENTS=0.0.0.0:8081 \
    GATEWAY_LISTEN__ADMIN=0.0.0.0:8082 \
    GATEWAY_STORE__URL=sqlite:///var/lib/gateway/gateway.db
WORKDIR /var/lib/gateway
USER 65532:65532
EXPOSE 8080 8081
ENTRYPOINT ["/usr/local/bin/gateway"]
CMD ["serve", "--config", "/etc/gateway/gateway.toml"]
