# `make check` is for every edit, `make test` is what CI runs, `make test-all` is everything else.
# `make help` lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

REAL := .cache/real
export CARGO_NET_RETRY ?= 10

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: check
check: compiler prose ## for every edit: prose, formatting, clippy and unit tests, under three minutes when warm
	cargo fmt --all --check
	cargo clippy --locked --workspace --lib --bins --tests -- -D warnings
	cargo test --locked --workspace --lib --quiet

# Real parts are downloaded while the program is compiled.
.PHONY: test
test: compiler ## what CI runs: unit and behavior tests, SDKs, a real engine, Prometheus, the chart, the page
	tests/lane test $(STEPS)

.PHONY: test-all
test-all: compiler ## all other tests, at most 90 minutes: only parts that have not passed for this commit (PARTS="fuzz soak", AGAIN=1)
	tests/lane all $(PARTS) $(if $(AGAIN),--again)

.PHONY: lint
lint: compiler prose ## prose, formatting, clippy, the places of planted defects and of recipes: warnings are errors
	tests/defects/run --places
	tests/recipes/run --places
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings

.PHONY: prose
prose: ## check documents, comments and messages by the rules and limits of tests/prose.toml
	python3 tests/prose_test.py --quiet
	tests/prose

.PHONY: recipes
recipes: compiler ## check the recipes of docs/contributing.md with one example each
	tests/recipes/run

.PHONY: docs
docs: compiler ## check the links of the Rust documentation: warnings are errors
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --lib

# The package has no examples, but requesting them gives dependencies the features that tests need, so that nothing is
# compiled twice.
AS_TESTED := --examples
NEXTEST := $(shell cargo nextest --version > /dev/null 2>&1 && echo yes)
.PHONY: build
build: compiler ## build the program and its tests
	cargo $(if $(NEXTEST),nextest run,test) --locked --workspace --no-run
	cargo build --locked --bin tokengauge $(AS_TESTED)

# nextest runs each test in a separate process and many at a time (.config/nextest.toml), but no doc tests.
.PHONY: unit
unit: compiler ## the Rust tests, including doc tests
ifeq ($(NEXTEST),yes)
	cargo nextest run --locked --workspace
	cargo test --locked --workspace --doc --quiet
else
	cargo test --locked --workspace --no-fail-fast
endif

# Verdicts in simulated time: their error rates and their power. `make unit` runs few of them, and `make test-all` runs
# all calibrations of experiments.
.PHONY: calibrations
calibrations: compiler ## the table of false alarms and power of gate, compare, search, experiment, drift and report: two hours
	@printf '%s\n' '| verdict | simulated traffic | runs | false alarms | 95 %% interval | power |' '|---|---|---|---|---|---|'
	TOKENGAUGE_THOROUGH=1 cargo nextest run --locked --workspace --lib -E 'test(/calibration::/)' --success-output final --color never \
		2>&1 | tee target/calibrations.txt | sed -n '/| verdict/d; s/^ *\(test .* \.\.\. \)\{0,1\}| /| /p; /FAIL/p'
	@! grep -q FAIL target/calibrations.txt

# Tests of which `make unit` runs fewer repetitions.
THOROUGH := (package(tokengauge-experiments) & test(/calibration::/)) | test(/^fuzz_corpora::/)
.PHONY: thorough
thorough: compiler ## all calibrations of experiments and comparisons of fuzz inputs
	TOKENGAUGE_THOROUGH=1 TOKENGAUGE_FUZZ_INPUTS=20000 cargo nextest run --locked --workspace -E '$(THOROUGH)'

# PART is the name of a part of `make test-all` that uses real parts (tests/real/lanes.py). Without it, `make real` runs the
# tests of `make test`.
.PHONY: parts
parts: compiler ## install the real parts that `make test` needs (PART=collector: parts for a part of `make test-all`)
ifneq ($(TOKENGAUGE_SKIP_REAL),1)
	tests/real/install --lane $(or $(PART),test)
endif

.PHONY: real
real: ## the tests of `make test` that use real parts (PART=collector: tests of a part of `make test-all`; PYTEST_ARGS="-k name")
ifeq ($(TOKENGAUGE_SKIP_REAL),1)
	@if [ "$${CI:-}" = true ]; then echo "TOKENGAUGE_SKIP_REAL is refused under CI=true" >&2; exit 1; fi
	@echo "real: SKIPPED because TOKENGAUGE_SKIP_REAL=1" >&2
else
	$(MAKE) parts $(if $(filter containers,$(PART)),static)
	cargo build --locked --bin tokengauge $(AS_TESTED)
	$(REAL)/venv/bin/python -m pytest -n auto $(if $(PART),--part $(PART)) --junitxml=target/pytest.xml $(or $(PYTEST_ARGS),tests/real)
endif

# The static program links the objects that exist already: the flags are only for the last step. IMAGE_PROFILE=image is
# the profile of the Dockerfile.
IMAGE_PROFILE ?= dev
# The profile that the image is optimized with (release/README.md).
PGO := release/pgo.profdata
# Packed relocations take an eightieth of the space. The C library that starts the program must support them, so they
# are packed only if it is linked statically.
STATIC := -C target-feature=+crt-static -C link-arg=-Wl,-z,pack-relative-relocs
.PHONY: static
static: compiler ## build target/static/tokengauge, the binary of the image; IMAGE_PROFILE=image for a release
ifeq ($(IMAGE_PROFILE),dev)
	cargo rustc --locked --bin tokengauge $(AS_TESTED) -- $(STATIC)
else
	release/check-profile || true # a profile that does not fit costs speed only
	RUSTFLAGS="-Cprofile-use=$(CURDIR)/$(PGO)" cargo rustc --locked --profile $(IMAGE_PROFILE) --bin tokengauge -- $(STATIC)
endif
	install -D target/$(subst dev,debug,$(IMAGE_PROFILE))/tokengauge target/static/tokengauge

.PHONY: check-profile
check-profile: ## check that the image's profile matches the compiler, the dependencies and the sources
	release/check-profile

# Repeat it for a release, another compiler or other dependencies. The tool of LLVM 19 reads the profiles of the
# compiler's newer LLVM.
.PHONY: pgo
pgo: compiler ## record the profile for optimising the image: half an hour
	command -v llvm-profdata-19 > /dev/null || tests/real/apt llvm-19
	rm -rf target/pgo
	RUSTFLAGS="-Cprofile-generate=$(CURDIR)/target/pgo/raw" cargo build --locked --profile image --bin tokengauge --target-dir target/pgo
	rm -r target/pgo/raw # build scripts and macros, which ran meanwhile
	TOKENGAUGE_PROGRAM=target/pgo/image/tokengauge cargo bench --locked --bench peers -- --rounds 1 \
		--peers tokengauge,compared,kept,sent --scenes short,first-token,paced,flat-out,recorded,tls,http2,metrics
	TOKENGAUGE_PROGRAM=target/pgo/image/tokengauge cargo bench --locked --bench peers -- --rounds 1 \
		--peers tokengauge --scenes short,tls,http2 --workers 2
	llvm-profdata-19 merge --sparse --output $(PGO) target/pgo/raw
	release/check-profile --record
	rm -rf target/pgo target/image # cargo does not notice that target/image was compiled with the previous profile

.PHONY: bench
bench: ## all benchmarks; see also bench-tools, bench-gateways and soak
	cargo bench --locked $(addprefix --bench ,peers tap ledger wire counter accuracy)

# Mixed traffic with faults; every call is compared with the backend's ground truth.
.PHONY: soak
soak: compiler ## half an hour of mixed traffic with faults (MINUTES=30, SEED=n, SOAK_PROFILE=dev)
	cargo bench --locked $(addprefix --profile ,$(SOAK_PROFILE)) --bench soak -- --minutes $(or $(MINUTES),30) $(addprefix --seed ,$(SEED))

.PHONY: sink-load
sink-load: compiler ## 5,000 calls a second for ten minutes to real stores that are unreachable for five (SECONDS=600)
	tests/real/install --lane alone
	cargo build --locked
	TOKENGAUGE_SINK_SECONDS=$(or $(SECONDS),600) TOKENGAUGE_SINK_PROFILE=release $(REAL)/venv/bin/python -m pytest -s tests/real/test_sink_load.py

.PHONY: bench-tools
bench-tools: ## install nginx, haproxy, Envoy and perf for `cargo bench --bench peers`
	PATH="$$PATH:/usr/sbin" && command -v nginx > /dev/null && command -v haproxy > /dev/null || tests/real/apt nginx haproxy
	command -v perf > /dev/null || tests/real/apt linux-perf || echo "bench-tools: no linux-perf here: no profiles" >&2
	benches/peers/gateways/install envoy

.PHONY: bench-gateways
bench-gateways: ## install LiteLLM and Portkey for `cargo bench --bench peers` (0.8 GB in .cache/)
	benches/peers/gateways/install litellm portkey

.PHONY: picture
picture: compiler ## draw docs/dashboards.png from a real run
	tests/real/install
	python3 -m venv $(REAL)/picture && $(REAL)/picture/bin/pip install --quiet matplotlib==3.11.2
	cargo build --locked
	$(REAL)/picture/bin/python tests/real/picture.py docs/dashboards.png

.PHONY: chart
chart: compiler ## generate the chart's alerts on the proxy
	cargo build --locked
	target/debug/tokengauge print rules --config tests/real/chart/none.toml --runbooks RUNBOOKS --grafana GRAFANA \
		> helm/tokengauge/files/rules.yaml 2> /dev/null

.PHONY: page-picture
page-picture: compiler ## take docs/live-page.png, a picture of the live page after four minutes of the demo
	tests/real/install
	cargo build --locked
	node $(REAL)/page/picture.mjs target/debug/tokengauge docs/live-page.png

# The ledger is created once, in ten minutes, and has 1.8 GB.
.PHONY: page-speed
page-speed: compiler ## measure the page's time to its first figures on a ledger of five million calls
	tests/real/install
	cargo bench --locked --bench ledger --no-run
	mkdir -p target/ledgers
	[ -f target/ledgers/page.sqlite ] || { rm -f target/ledgers/part.sqlite*; \
		{ TOKENGAUGE_LEDGER=target/ledgers/part.sqlite cargo bench --locked --bench ledger || true; } | tee /dev/stderr | grep '^written: ' > /dev/null; \
		mv target/ledgers/part.sqlite target/ledgers/page.sqlite; }
	node $(REAL)/page/big_ledger.mjs target/release/tokengauge target/ledgers/page.sqlite

.PHONY: fuzz
fuzz: compiler ## run every fuzz target for FUZZ_SECONDS (60)
	fuzz/run $(or $(FUZZ_SECONDS),60)

# Built without optimisation: the build takes a minute, once, and the program runs for two seconds.
DENY := 0.20.2
.PHONY: deny
deny: compiler ## check licences, sources, bans and duplicates of all dependencies by deny.toml
	[ -x .cache/deny-$(DENY)/bin/cargo-deny ] || CARGO_TARGET_DIR=.cache/deny-build CARGO_PROFILE_RELEASE_OPT_LEVEL=0 \
		CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_STRIP=none \
		cargo install --quiet --locked --version $(DENY) --root .cache/deny-$(DENY) cargo-deny
	rm -rf .cache/deny-build
	.cache/deny-$(DENY)/bin/cargo-deny --all-features --locked check licenses sources bans

.PHONY: clean-cache
clean-cache: ## delete the engine, the SDKs and the model
	rm -rf .cache

# ring, zstd, mimalloc and SQLite are C: cargo needs a C compiler, also for linking.
.PHONY: compiler
compiler:
	@command -v cc > /dev/null || tests/real/apt build-essential
