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
BIN := $(CARGO_TARGET_DIR)/release/cuttlebone

.PHONY: up down build deps test unit clients restart fuzz lint test-clients bench clean-run

up: build
	@scripts/up $(BIN) $(DIR)

down: build
	$(BIN) down --dir $(DIR)

deps:
	@scripts/install-deps

build: deps
	$(CARGO) build --release -p cuttlebone

lint: deps
	$(CARGO) clippy --release --workspace --all-targets -- -D warnings

unit: deps
	$(CARGO) test --release --workspace

clients: build
	tests/clients/on_fresh_cluster $(BIN) tests/clients/run.py

restart: build
	tests/clients/on_fresh_cluster $(BIN) tests/clients/kill_all.py --bin $(BIN)

fuzz: deps
	scripts/fuzz-short

test: unit clients restart

# The same client tests with Reef and Tentacle clients, each in a directory of its own made with debootstrap.
test-clients: build
	tests/clients/generations $(BIN)

bench: build
	bench/side_by_side.py --bin $(BIN) --peer $(or $(PEER),pacific)
