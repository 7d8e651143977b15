# `make test` installs what the tests need into .cache/ and runs all of them.
# `make help` lists the rest.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

REAL := .cache/real
export CARGO_NET_RETRY ?= 10

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The real parts are downloaded and unpacked while the program is compiled and its own tests run.
.PHONY: test
test: compiler ## everything, installing what is missing: what CI runs
	nice -n 19 $(MAKE) parts & installing=$$!; trap 'kill $$installing 2> /dev/null || true' EXIT; \
	$(MAKE) lint deny unit && wait $$installing
	$(MAKE) real fuzz-short soak-short

.PHONY: check
check: compiler ## for every edit: formatting, clippy and the unit tests, under three minutes once built
	cargo fmt --all --check
	cargo clippy --locked --workspace --lib --bins --tests -- -D warnings
	cargo test --locked --workspace --lib --quiet

.PHONY: lint
lint: compiler ## formatting, clippy and the links of the documentation, warnings are errors
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --lib

# nextest runs the tests of one binary in parallel processes, but no doc tests.
.PHONY: unit
unit: compiler ## Rust's tests, doc tests included
	if cargo nextest --version > /dev/null 2>&1; then \
		cargo nextest run --locked --workspace --no-fail-fast --status-level slow --final-status-level slow && cargo test --locked --workspace --doc; \
	else \
		cargo test --locked --workspace --no-fail-fast; \
	fi

.PHONY: parts
parts: compiler
ifneq ($(TOKENGAUGE_SKIP_REAL),1)
	tests/real/install
endif

# Most of these tests wait most of the time, so that four files run at once; those that compare times, or fill the cores,
# run by themselves.
PYTEST := $(REAL)/venv/bin/python -m pytest $(PYTEST_ARGS) tests/real
# 5 is what pytest says where options that somebody gave leave no test of the kind.
OR_NONE_CHOSEN := $(if $(PYTEST_ARGS),|| [ $$? = 5 ])
.PHONY: real
real: parts ## a real engine and the vendors' SDKs, with and without the proxy
ifeq ($(TOKENGAUGE_SKIP_REAL),1)
	@if [ "$${CI:-}" = true ]; then echo "TOKENGAUGE_SKIP_REAL is refused under CI=true" >&2; exit 1; fi
	@echo "real: SKIPPED because TOKENGAUGE_SKIP_REAL=1" >&2
else
	$(MAKE) static
	cargo build --locked --bin tokengauge $(AS_TESTED)
	$(PYTEST) -n 4 --dist loadfile -m "not alone" $(OR_NONE_CHOSEN)
	$(PYTEST) -m alone $(OR_NONE_CHOSEN)
endif

# One more linking of what is built anyway: the flag is for the last step alone. IMAGE_PROFILE=image is what the
# Dockerfile builds.
IMAGE_PROFILE ?= dev
# The package has no examples: to ask for them gives dependencies the features that they have for tests, of which nothing
# is then compiled again.
AS_TESTED := --examples
# Profile-guided optimisation: which branches calls take and how often, for the compiler of the image. It knows functions by
# names that another compiler and other dependencies change.
PGO := src/pgo.profdata
PGO_NAMES := src/pgo.names
NAMES := { rustc --version; sha256sum Cargo.lock; }
# Addresses to relocate take an eightieth of their place packed. The C library that starts the program has to know them, so
# that they are packed where it is part of the program.
STATIC := -C target-feature=+crt-static -C link-arg=-Wl,-z,pack-relative-relocs
.PHONY: static
static: compiler ## target/static/tokengauge, the binary of the image; IMAGE_PROFILE=image for the one to ship
ifeq ($(IMAGE_PROFILE),dev)
	cargo rustc --locked --bin tokengauge $(AS_TESTED) -- $(STATIC)
else
	@$(NAMES) | cmp -s - $(PGO_NAMES) || echo "static: the profile was recorded with another compiler or other dependencies," \
		"and says nothing of functions that have other names since: make pgo" >&2
	RUSTFLAGS="-Cprofile-use=$(CURDIR)/$(PGO)" cargo rustc --locked --profile $(IMAGE_PROFILE) --bin tokengauge -- $(STATIC)
endif
	install -D target/$(subst dev,debug,$(IMAGE_PROFILE))/tokengauge target/static/tokengauge

# Repeat it for a release, after `pgo`, for another compiler, and when what a start runs has moved: names that no longer
# exist are ignored. The image's program is made with its symbols here.
.PHONY: link-order
link-order: compiler ## record which functions a start and a call run, for the linker to put them side by side: half an hour
	command -v valgrind > /dev/null || tests/real/apt valgrind
	$(MAKE) static IMAGE_PROFILE=image STATIC="$(STATIC) -C strip=none"
	cargo build --locked --release
	benches/link_order/record src/link-order.ld target/static/tokengauge target/release/tokengauge

# Repeat it for a release, for another compiler and for other dependencies, and `link-order` after it. LLVM 19's tool reads
# what the compiler's newer LLVM writes.
.PHONY: pgo
pgo: compiler ## record what calls run, for profile-guided optimisation of the image: half an hour
	command -v llvm-profdata-19 > /dev/null || tests/real/apt llvm-19
	rm -rf target/pgo
	RUSTFLAGS="-Cprofile-generate=$(CURDIR)/target/pgo/raw" cargo build --locked --profile image --bin tokengauge --target-dir target/pgo
	rm -r target/pgo/raw # build scripts and macros, which ran meanwhile
	TOKENGAUGE_PROGRAM=target/pgo/image/tokengauge cargo bench --locked --bench peers -- --rounds 1 \
		--peers tokengauge,compared,kept,sent --scenes short,first-token,paced,flat-out,recorded,tls,http2,metrics
	TOKENGAUGE_PROGRAM=target/pgo/image/tokengauge cargo bench --locked --bench peers -- --rounds 1 \
		--peers tokengauge --scenes short,tls,http2 --workers 2
	llvm-profdata-19 merge --sparse --output $(PGO) target/pgo/raw
	$(NAMES) > $(PGO_NAMES)
	rm -rf target/pgo target/image # cargo does not see that the profile, with which the latter was compiled, is another

.PHONY: bench
bench: ## all benchmarks; see also bench-tools, bench-gateways and soak
	cargo bench --locked $(addprefix --bench ,peers tap ledger wire counter accuracy)

# Mixed traffic with faults; every call is held against what the backend really did.
.PHONY: soak
soak: compiler ## half an hour of mixed traffic with faults (MINUTES=30, SEED=n)
	cargo bench --locked --bench soak -- --minutes $(or $(MINUTES),30) $(addprefix --seed ,$(SEED))

.PHONY: soak-short
soak-short: compiler ## three minutes of the same, of what the tests have built
	cargo bench --locked --profile dev --bench soak -- --minutes $(or $(MINUTES),3) --seed $(or $(SEED),1)

.PHONY: sink-load
sink-load: compiler ## 5,000 calls a second for ten minutes to real stores that are away for five (SECONDS=600)
	tests/real/install
	cargo build --locked
	TOKENGAUGE_SINK_SECONDS=$(or $(SECONDS),600) TOKENGAUGE_SINK_PROFILE=release $(REAL)/venv/bin/python -m pytest -s tests/real/test_sink_load.py

.PHONY: bench-tools
bench-tools: ## nginx, haproxy, Envoy and perf: the peers of `cargo bench --bench peers`, and its profiles
	PATH="$$PATH:/usr/sbin" && command -v nginx > /dev/null && command -v haproxy > /dev/null || tests/real/apt nginx haproxy
	command -v perf > /dev/null || tests/real/apt linux-perf || echo "bench-tools: no linux-perf here: no profiles" >&2
	benches/peers/gateways/install envoy

.PHONY: bench-gateways
bench-gateways: ## LiteLLM and Portkey, further peers of it (0.8 GB in .cache/)
	benches/peers/gateways/install litellm portkey

.PHONY: picture
picture: compiler ## docs/dashboards.png, drawn from a real run
	tests/real/install
	python3 -m venv $(REAL)/picture && $(REAL)/picture/bin/pip install --quiet matplotlib==3.11.2
	cargo build --locked
	$(REAL)/picture/bin/python tests/real/picture.py docs/dashboards.png

.PHONY: chart
chart: compiler ## what of the chart is generated: the alerts on the proxy
	cargo build --locked
	target/debug/tokengauge rules --config tests/real/chart/none.toml --runbooks RUNBOOKS --grafana GRAFANA \
		> helm/tokengauge/files/rules.yaml 2> /dev/null

.PHONY: page-picture
page-picture: compiler ## docs/live-page.png, the live page after four minutes of the demo
	tests/real/install
	cargo build --locked
	node $(REAL)/page/picture.mjs target/debug/tokengauge docs/live-page.png

# The ledger is made once, in ten minutes; 1.8 GB.
.PHONY: page-speed
page-speed: compiler ## how long the page takes to its first figures on a ledger of five million calls
	tests/real/install
	cargo bench --locked --bench ledger --no-run
	mkdir -p target/ledgers
	[ -f target/ledgers/page.sqlite ] || { rm -f target/ledgers/part.sqlite*; \
		{ TOKENGAUGE_LEDGER=target/ledgers/part.sqlite cargo bench --locked --bench ledger || true; } | tee /dev/stderr | grep '^written: ' > /dev/null; \
		mv target/ledgers/part.sqlite target/ledgers/page.sqlite; }
	node $(REAL)/page/big_ledger.mjs target/release/tokengauge target/ledgers/page.sqlite

.PHONY: fuzz
fuzz: compiler ## every fuzz target for FUZZ_SECONDS (60)
	fuzz/run $(or $(FUZZ_SECONDS),60)

.PHONY: fuzz-short
fuzz-short: compiler ## every fuzz target for five seconds
	fuzz/run 5

# Built without optimisation: that takes a minute, once, and it runs for two seconds.
DENY := 0.20.2
.PHONY: deny
deny: compiler ## licences, sources, bans and duplicates of all dependencies, by deny.toml
	[ -x .cache/deny-$(DENY)/bin/cargo-deny ] || CARGO_TARGET_DIR=.cache/deny-build CARGO_PROFILE_RELEASE_OPT_LEVEL=0 \
		CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_STRIP=none \
		cargo install --quiet --locked --version $(DENY) --root .cache/deny-$(DENY) cargo-deny
	rm -rf .cache/deny-build
	.cache/deny-$(DENY)/bin/cargo-deny --all-features --locked check licenses sources bans

.PHONY: clean-cache
clean-cache: ## forget the engine, the SDKs and the model
	rm -rf .cache

# ring, zstd, mimalloc and SQLite are C: cargo needs a C compiler, and so does its linker.
.PHONY: compiler
compiler:
	@command -v cc > /dev/null || tests/real/apt build-essential
