# `make demo` shows Podcradle at work, `make test` tests everything; both check
# and install what they need first. See README.md.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
# Recipes build with cargo and start daemons: one at a time.
.NOTPARALLEL:

export PATH := $(PATH):/usr/local/sbin:/usr/sbin:/sbin:$(HOME)/.cargo/bin:/usr/local/go/bin

MUSL := x86_64-unknown-linux-musl aarch64-unknown-linux-musl
# As podcradle-images stages them, so that nothing is compiled twice: a panic
# names a crate's file without the folder that this machine keeps crates in.
REMAP := --remap-path-prefix=$(or $(CARGO_HOME),$(HOME)/.cargo)/registry/src=/crates
export CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_RUSTFLAGS := $(REMAP)
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_RUSTFLAGS := $(REMAP)

TESTBED := cargo run --quiet -p podcradle-tests --bin testbed --

.PHONY: help
help: ## Say what there is to make
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1	\2/p' $(MAKEFILE_LIST) | expand -t 20

.PHONY: demo
demo: prerequisites up images ## Launch a sandbox on a real Kubernetes and take it down (KEEP=1 keeps the cluster)
	cargo run --quiet -p podcradle-tests --bin demo || \
		{ echo "The demo failed; its cluster is kept for a look, make down takes it away." >&2; exit 1; }
ifeq ($(KEEP)$(PODCRADLE_KUBECONFIG),)
	$(TESTBED) down
else
	@echo "The cluster is kept; make down takes it away."
endif

.PHONY: test
test: prerequisites check build up images ## Every check and every test
	.ci/suites

.PHONY: check
check: ## Format, lints, licences, sources
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo fmt --manifest-path supervisor/fuzz/Cargo.toml --check
	cargo clippy --manifest-path supervisor/fuzz/Cargo.toml --target-dir target/fuzz --locked -- -D warnings
	.ci/deny

.PHONY: build
build: ## The supervisor and the launcher, static, for both architectures
	cargo build --locked --profile supervisor -p podcradle-init $(MUSL:%=--target=%)
	cargo build --locked --release -p podcradle-launcher $(MUSL:%=--target=%)

.PHONY: up
up: ## Boot the test cluster (testbed status says where everything is)
ifdef PODCRADLE_KUBECONFIG
	@echo "up: nothing is booted: PODCRADLE_KUBECONFIG names a cluster"
else
	$(TESTBED) up
endif

.PHONY: down
down: ## Stop the test cluster and leave nothing behind
	$(TESTBED) down

.PHONY: images
images: up ## Bake the images into the test cluster, for both architectures
ifdef PODCRADLE_KUBECONFIG
	@echo "images: not built: PODCRADLE_SANDBOX_IMAGE_AMD64 and _ARM64 name what the cluster can pull"
else
	.ci/images
endif

.PHONY: bench-launch
bench-launch: prerequisites build up images ## A launch: its calls, times, CPU and memory, one and a thousand at once
	cargo run --quiet --release -p podcradle-tests --bin bench-launch

.PHONY: bench-supervisor
bench-supervisor: prerequisites build ## The supervisor beside tini, dumb-init and catatonit
	cargo run --quiet --release -p podcradle-tests --bin bench-supervisor

.PHONY: prerequisites
prerequisites: ## Check what is needed and install what Debian has
	@.ci/prerequisites
