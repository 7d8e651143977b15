# The image: one static binary, the CA roots and nothing else. No shell, no root, nothing to write to.
#
#   docker build -t tokengauge .                          builds the binary, too
#   buildah bud --build-arg FROM=prebuilt \
#     --build-context binary=DIR -t tokengauge .          takes DIR/tokengauge and DIR/ca-certificates.crt
#
# glibc, linked statically, rather than musl: its allocator holds up with many threads, it is what the benchmarks
# and the tests run on, and since 2.34 its resolver reads /etc/hosts and asks DNS without loading anything.
# The build says that `getaddrinfo` "requires at runtime the shared libraries": those are for other sources than
# the two of /etc/nsswitch.conf below.
ARG RUST=1.95-bookworm
ARG FROM=build

FROM docker.io/library/rust:${RUST} AS build
WORKDIR /src
COPY . .
# A target of its own name keeps the flag from build scripts and macros, which cannot be static.
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    target=$(rustc -vV | sed -n 's/^host: //p') \
    && RUSTFLAGS="-C target-feature=+crt-static" cargo build --locked --profile image --target "$target" \
    && install -D "target/$target/image/tokengauge" /out/tokengauge \
    && cp /etc/ssl/certs/ca-certificates.crt /out/

# A binary from elsewhere, built with the same flags.
FROM scratch AS prebuilt
COPY --from=binary tokengauge ca-certificates.crt /out/

FROM ${FROM} AS binary-of-choice

FROM scratch
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="tokengauge" \
      org.opencontainers.image.description="A transparent streaming reverse proxy that measures tokens per second on live LLM traffic" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=binary-of-choice /out/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY image/ /
COPY --from=binary-of-choice /out/tokengauge /usr/bin/tokengauge
USER 65532:65532
EXPOSE 8080 9464
ENTRYPOINT ["/usr/bin/tokengauge"]
# A container's own loopback address is of no use to anybody outside.
CMD ["run", "--listen", "0.0.0.0:8080", "--admin", "0.0.0.0:9464"]
