# What workspaces in Kubernetes get put in beside their own image: the agent and the editor (`tools_image` of a cluster's
# configuration). From the top of the repository:
#
#   docker build --file deploy/images/tools.Dockerfile --tag workspace-tools:0.1.0 \
#     --build-arg EDITOR_SHA256=THE_SUM_OF_THE_ARCHIVE_THAT_YOU_TRUST .
#
# A pod's first container copies /workspace-tools to a folder that the others see (a script for `/bin/sh`, as user 5001), so it has to
# be complete in itself: deploy/images/tools.files says what has to be there. The next one clones projects with this image's own git. The agent is static and runs in any image; the editor brings its own
# node, which needs glibc 2.28 or later: an image of musl has no editor, and everything else.
ARG BUILD_IMAGE=rust:1.95.0-alpine3.22
ARG RUN_IMAGE=debian:13.1-slim

FROM ${BUILD_IMAGE} AS agent
RUN apk add --no-cache build-base cmake perl
WORKDIR /src
COPY . .
# Without the Kubernetes client, which only an agent of a cluster needs.
RUN cargo build --release --locked --package workspace-agent --bin workspace-agent-slim

FROM ${RUN_IMAGE} AS editor
ARG TARGETARCH=amd64
ARG EDITOR_VERSION=4.100.3
# There is no default: the builder of the image decides which archive to trust.
ARG EDITOR_SHA256
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates curl \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /editor
RUN curl --fail --location --proto '=https' --output /tmp/editor.tar.gz \
      "https://github.com/coder/code-server/releases/download/v${EDITOR_VERSION}/code-server-${EDITOR_VERSION}-linux-${TARGETARCH}.tar.gz" \
    && echo "${EDITOR_SHA256:?give the sum of the archive: --build-arg EDITOR_SHA256=}  /tmp/editor.tar.gz" | sha256sum --check --strict - \
    && tar --extract --gzip --file /tmp/editor.tar.gz --strip-components 1 --no-same-owner \
    && rm /tmp/editor.tar.gz

# The SSH server, with its own libraries and their loader.
FROM ${RUN_IMAGE} AS ssh
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libnss-wrapper openssh-client openssh-server rsync \
    && rm -rf /var/lib/apt/lists/*
COPY deploy/images/ssh-tools.sh /ssh-tools.sh
RUN /ssh-tools.sh /workspace-tools/ssh

FROM ${RUN_IMAGE}
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates git \
    && rm -rf /var/lib/apt/lists/*
COPY --from=agent /src/target/release/workspace-agent-slim /workspace-tools/bin/workspace-agent
COPY --from=editor /editor /workspace-tools/lib/code-server
COPY --from=ssh /workspace-tools/ssh /workspace-tools/ssh
COPY deploy/images/tools.files /workspace-tools/files
# The link is relative: what it leads to is copied with it, to another folder.
RUN ln -s ../lib/code-server/bin/code-server /workspace-tools/bin/code-server \
    && chmod -R a+rX,go-w /workspace-tools \
    && while read -r file; do \
         test -x "/workspace-tools/$file" || { echo "not there, or not to be run: $file"; exit 1; }; \
       done < /workspace-tools/files \
    && test -x /bin/sh && git --version
USER 5001:0
CMD ["/bin/sh", "/workspace-gateway/scripts/prepare.sh"]
