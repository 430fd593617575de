# Two commands first: `make up` starts a cluster on this machine, `make test` runs everything CI runs.

CACHE ?= $(HOME)/.cache/cuttlebone
export CARGO_TARGET_DIR ?= $(CACHE)/target
export PATH := $(HOME)/.cargo/bin:$(PATH)
export CCACHE_NOHASHDIR := 1
# RocksDB is ten minutes of C++: ccache makes every build after the first one short.
export CC := ccache cc
export CXX := ccache c++
DIR ?= run
CARGO ?= cargo
BIN := $(CARGO_TARGET_DIR)/dist/cuttlebone

.PHONY: up down build compiled deps test lint unit clients checks checks-stock script wrong restart balance scrub compression snapshots erasure full memory devices capacity fuzz dencoder msgr-stock test-clients bench bench-recovery bench-qos bench-capacity bench-devices bench-ec replace networks chaos chaos-short linearizability sim sim-seeds mutants

up: build
	@scripts/up $(BIN) $(DIR)

down: build
	$(BIN) down --dir $(DIR)

deps:
	@scripts/install-deps

build: deps
	$(CARGO) build --profile dist -p cuttlebone

lint: deps
	$(CARGO) clippy --release --workspace --all-targets -- -D warnings
	cd fuzz && CARGO_TARGET_DIR=$(CARGO_TARGET_DIR)/fuzz $(CARGO) clippy --release --all-targets -- -D warnings
	@for bug in tests/mutants/*.patch; do git apply --check $$bug || exit 1; done

unit: deps
	$(CARGO) test --release --workspace

clients: build
	tests/clients/on_fresh_cluster $(BIN) tests/clients/run.py

# The native client's checks against ours; `make checks-stock` runs the same against stock Pacific and Tentacle.
checks: build
	tests/clients/on_fresh_cluster $(BIN) tests/clients/native_checks.py --bin $(BIN)

checks-stock: build
	tests/clients/native_checks.py --bin $(BIN) --peer pacific
	tests/clients/native_checks.py --bin $(BIN) --peer tentacle

# A deployment script for stock daemons, with ours under their names.
script: build
	tests/clients/stock_script.py --bin $(BIN)

restart: build
	tests/clients/on_fresh_cluster $(BIN) tests/clients/health_after_crash.py --bin $(BIN)
	tests/clients/on_fresh_cluster $(BIN) tests/clients/kill_one.py --bin $(BIN)
	tests/clients/on_fresh_cluster $(BIN) tests/clients/pg_num.py --bin $(BIN)
	tests/clients/on_fresh_cluster $(BIN) tests/clients/kill_all.py --bin $(BIN)
	tests/clients/on_fresh_cluster $(BIN) tests/clients/force.py --bin $(BIN)
	tests/clients/on_fresh_cluster $(BIN) tests/clients/progress.py
	tests/clients/on_fresh_cluster $(BIN) tests/clients/unfound.py --bin $(BIN)
	MONS=3 tests/clients/on_fresh_cluster $(BIN) tests/clients/kill_leader.py --bin $(BIN)
	tests/clients/on_fresh_cluster $(BIN) tests/clients/monitors.py --bin $(BIN)
	MONS=3 tests/clients/on_fresh_cluster $(BIN) tests/clients/recover_monitors.py --bin $(BIN)

# Nine OSDs on three CRUSH hosts: disks of three sizes become equally full.
balance: build
	UP="--osds 9 --hosts 3 --device-class nvme,nvme,ssd" SIZE=512M,1G,1536M,1536M,512M,1G,1G,1536M,512M \
	  tests/clients/on_fresh_cluster $(BIN) tests/clients/balance.py

# An OSD learns what its disk can do, and says so.
capacity: build
	tests/clients/capacity.py --bin $(BIN)

# Blocks that go bad.
scrub: build
	tests/clients/on_fresh_cluster $(BIN) tests/clients/scrub.py

# Snapshots of pools and of clients, with stock tools.
snapshots: build
	tests/clients/on_fresh_cluster $(BIN) tests/clients/snapshots.py --bin $(BIN)

# Erasure-coded pools, with stock tools.
erasure: build
	UP="--osds 6" SIZE=2G tests/clients/on_fresh_cluster $(BIN) tests/clients/erasure.py --bin $(BIN)
	tests/clients/on_fresh_cluster $(BIN) tests/clients/force_create.py --bin $(BIN)

# Pools that compress, checksums of all types, and what devices are taken for.
compression: build
	tests/clients/on_fresh_cluster $(BIN) tests/clients/compression.py --bin $(BIN)

# Control groups that limit memory.
memory: build
	tests/clients/memory.py --bin $(BIN)

# Disks and pools that fill up.
full: build
	SIZE=512M tests/clients/on_fresh_cluster $(BIN) tests/clients/full.py --bin $(BIN)

# OSDs on devices of their own: made, moved, taken away.
devices: build
	tests/clients/on_fresh_cluster $(BIN) tests/clients/devices.py --bin $(BIN)

fuzz: deps
	scripts/fuzz-short

# Everything at once against real processes, on machines of their own (network namespaces): make chaos SECONDS=60 SEED=1
chaos: build linearizability
	tests/clients/chaos.py --bin $(BIN) --seconds $(or $(SECONDS),600) $(if $(SEED),--seed $(SEED))

# What docs/operations.md says about replacing disks and nodes.
replace: build
	tests/clients/on_fresh_cluster $(BIN) tests/clients/replace.py --bin $(BIN)

# Two networks, and one of them gone.
networks: build
	tests/clients/networks.py --bin $(BIN)

chaos-short: build linearizability
	tests/clients/chaos.py --bin $(BIN) --seconds 75

# The checker of histories, which checks itself.
linearizability: deps
	@cd tests/linearizability && for wait in 5 20 60; do go mod download && exit; sleep $$wait; done; go mod download
	cd tests/linearizability && go vet . && go test . && go build -o $(CACHE)/linearizability .

# The whole cluster in simulation: new seeds for MINUTES (10), or SEEDS of them, or both at least, or one seed with what happened in it, shrunk if it fails.
sim: linearizability
	$(CARGO) build --release -p sim
	SEED=$(SEED) LESS="$(LESS)" MINUTES="$(MINUTES)" CHECKER=$(CACHE)/linearizability $(CARGO_TARGET_DIR)/release/sim

# The same seeds for everybody, so that a red build is of the change: so many, and more where they take less than ten minutes.
sim-seeds: export SEEDS = 200
sim-seeds: MINUTES = 10
sim-seeds: export FIRST = 1
sim-seeds: sim

# Does the simulator find bugs? Plants one after the other (tests/mutants) in a copy, and runs seeds until one fails: an hour or two.
mutants: linearizability
	CACHE=$(CACHE) scripts/mutants $(NAMES)

FIRST := build linearizability lint compiled
CLUSTERS := clients checks script wrong restart replace networks capacity balance scrub compression snapshots erasure full memory devices chaos-short
BESIDE := unit sim-seeds fuzz

# What `make test` runs beside clusters. Compiled before: a disk that compilers write to makes monitors wait for seconds.
compiled: deps
	$(CARGO) test --release --workspace --no-run
	$(CARGO) build --release -p sim
	scripts/fuzz-short 0

# Everything, and how long each of it took. Built first: of a machine that has nothing yet, that is half the time.
test:
	@KEEP_GOING=$(findstring k,$(firstword -$(MAKEFLAGS))) scripts/test-all $(MAKE) $(FIRST) -- $(CLUSTERS) -- $(BESIDE)

# What we encode, read by another Ceph's ceph-dencoder (Debian 11, in a directory of its own made with debootstrap).
dencoder: deps
	scripts/dencoder-root $(CACHE)/root-dencoder
	CUTTLEBONE_DENCODER_ROOT=$(CACHE)/root-dencoder $(CARGO) test --release -p types --test dencoder

# Our messenger against a stock monitor and a stock OSD.
msgr-stock: deps
	scripts/msgr-stock $(CARGO)

# Wrong input, full disks, strangers and damaged stores against real processes.
wrong: build
	tests/clients/wrong_input.py --bin $(BIN)

# The same client tests with Reef and Tentacle clients, and leaders killed under theirs, each in a directory of its own made with debootstrap.
test-clients: build
	tests/clients/generations $(BIN)

bench: build
	bench/side_by_side.py --bin $(BIN) --peer $(or $(PEER),pacific) $(if $(QUICK),--quick) $(if $(SECURE),--secure)

# Who gets how much of a slow disk, beside stock Ceph (PEER=none: not); what an OSD learns of disks, beside fio; where database and log had better be.
bench-qos: build
	bench/qos.py --bin $(BIN) --peer $(or $(PEER),reef)

bench-capacity: build
	bench/capacity.py --bin $(BIN)

bench-devices: build
	bench/devices.py --bin $(BIN) --peer $(or $(PEER),tentacle)

# An erasure-coded pool beside stock Ceph's; what a client feels of a snapshot, there and in a replicated pool.
bench-ec: build
	bench/erasure.py --bin $(BIN) --peer $(or $(PEER),tentacle)
	bench/snapshots.py --bin $(BIN) --peer $(or $(PEER),tentacle)

# How fast copies come back, and what clients feel of it, beside stock Ceph as it comes and with recovery turned up (QUICK=1: not that).
bench-recovery: build
	bench/recovery.py --bin $(BIN) --peer $(or $(PEER),tentacle) $(if $(QUICK),,--tuned)
