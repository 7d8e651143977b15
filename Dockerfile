# The image: one static binary, the CA roots and nothing else. No shell, no root, nothing that has to be written to.
#
#   docker build -t tokengauge .                        also builds the binary
#   buildah bud --build-arg FROM=build -t tokengauge .  the same; left to itself, buildah 1.28 skips that stage
#   buildah bud --build-arg FROM=prebuilt --build-context binary=DIR -t tokengauge .
#                                                       takes DIR/tokengauge and DIR/ca-certificates.crt
#
# glibc, linked statically, rather than musl: it is what tests and benchmarks run on,
# and since 2.34 its resolver reads /etc/hosts and asks DNS without loading anything, by /etc/nsswitch.conf below.
ARG RUST=1.95-bookworm
ARG FROM=build

FROM docker.io/library/rust:${RUST} AS build
WORKDIR /src
# mimalloc's C writes down when it was compiled: two builds are to give the same binary.
ENV SOURCE_DATE_EPOCH=0
# For `--version`, such as `1234567 of 2026-01-31`: the context is without .git.
ARG COMMIT
ENV TOKENGAUGE_COMMIT=${COMMIT}
COPY . .
# Profile-guided optimisation, by what `make pgo` has recorded.
ENV RUSTFLAGS="-Cprofile-use=/src/release/pgo.profdata"
# The flag applies only to the last step. Dependencies and macros are built without it.
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    cargo rustc --locked --profile image --bin tokengauge -- \
        -C target-feature=+crt-static -C link-arg=-Wl,-z,pack-relative-relocs \
    && install -D target/image/tokengauge /out/tokengauge \
    && cp /etc/ssl/certs/ca-certificates.crt /out/

# A binary from elsewhere, built by the same command.
FROM scratch AS prebuilt
COPY --from=binary tokengauge ca-certificates.crt /out/

FROM ${FROM} AS chosen

FROM scratch
ARG VERSION=0.2.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="tokengauge" \
      org.opencontainers.image.description="A transparent streaming reverse proxy that measures tokens per second on live LLM traffic" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY image/etc /etc/
# For `state_dir`: a volume that is mounted here belongs to the user below.
COPY --chown=65532:65532 image/var/lib/tokengauge /var/lib/tokengauge/
COPY --from=chosen /out/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=chosen /out/tokengauge /usr/bin/tokengauge
USER 65532:65532
EXPOSE 8080 9464
ENTRYPOINT ["/usr/bin/tokengauge"]
# A container's own loopback address is of no use to anybody outside.
CMD ["run", "--listen=0.0.0.0:8080", "--admin=0.0.0.0:9464"]
