# The agent of a cluster (deploy/cluster-agent.yaml), which is also that of a machine or a CI job. From the top of the repository:
#
#   docker build --file deploy/images/agent.Dockerfile --tag workspace-agent:0.1.0 .
#
# One static program, and the authorities that vouch for the gateway and the cluster. No shell, nothing to write to.
ARG BUILD_IMAGE=rust:1.95.0-alpine3.22

FROM ${BUILD_IMAGE} AS build
RUN apk add --no-cache build-base ca-certificates cmake perl
WORKDIR /src
COPY . .
RUN cargo build --release --locked --package workspace-agent --bin workspace-agent

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /src/target/release/workspace-agent /usr/local/bin/workspace-agent
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/workspace-agent"]
CMD ["--help"]
