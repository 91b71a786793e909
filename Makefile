# Everything that is done with this repository, by name. `make` alone lists it.
#
# Needs Go, a C compiler (for the race detector), git and make. Generators and linters are built from
# the versions that tools/go.mod pins.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help check test build vet lint gen gen-check pure check-history mutants sim faults soak bench bench-tools
.PHONY: programs image helm kube kube-down envtest e2e

GO   ?= go
TOOL := $(GO) tool -modfile=tools/go.mod
BUF  := $(TOOL) buf

# Nothing here is released from here, and asking git for a stamp fails in a checkout that another user owns.
export GOFLAGS := $(strip $(GOFLAGS) -buildvcs=false)

# The rooms without clock, randomness and I/O, the wire contract, the rules of the house and the index of
# cases: quick, and what breaks most.
PURE := ./api/... ./internal ./internal/limit/... ./internal/keyspace/... ./internal/policy/... ./internal/fsm/... ./test/cases

help: ## Say what there is
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

check: build vet lint gen-check pure ## Before every commit: builds, lints, generated code, pure rooms

test: vet lint gen-check ## Everything: check's lint, all tests with the race detector, envtest, mutants, simulation, faults
	$(GO) test -race -timeout 20m ./...
	@$(MAKE) --no-print-directory envtest
	@$(MAKE) --no-print-directory mutants
	@$(MAKE) --no-print-directory sim
	@$(MAKE) --no-print-directory faults

build: ## Compile every package
	$(GO) build ./...

vet: ## go vet
	$(GO) vet ./...

lint: ## golangci-lint, and buf lint for the wire contract
	$(TOOL) golangci-lint run ./...
	$(BUF) lint

# The deepcopy functions and the custom resource of api/policy, written below a folder. The values of entries get
# nullable, for which there is no marker: of what isn't nullable the API server drops a null without a word, and a rule
# that asks for less would take more. The schema's rules refuse it. The chart, which can't read outside of itself, has a copy.
POLICY_OBJECTS = $(TOOL) controller-gen paths=./api/policy/... object crd \
	output:object:dir=$(1)/api/policy/v1alpha1 output:crd:dir=$(1)/config/crd && \
	sed -i 's/^\( *\)pattern: ^\[^\\x00.*/\1nullable: true\n&/' $(1)/config/crd/*.yaml && \
	mkdir -p $(1)/charts/quorate/files && cp $(1)/config/crd/*.yaml $(1)/charts/quorate/files/

gen: ## Write the generated code anew
	$(BUF) generate
	$(call POLICY_OBJECTS,.)

# config/crd holds what is generated and nothing else: it is what gets installed. So does charts/quorate/files.
gen-check: ## Prove that the generated code is what its sources give
	@tmp=$$(mktemp -d) && trap 'rm -rf "$$tmp"' EXIT && mkdir "$$tmp/have" "$$tmp/want" && \
	$(BUF) generate -o "$$tmp/want" && \
	$(call POLICY_OBJECTS,"$$tmp/want") && \
	tar cf - config/crd charts/quorate/files $$(find api -name '*.pb.go' -o -name 'zz_generated.*.go') | tar xf - -C "$$tmp/have" && \
	{ diff -ru "$$tmp/have" "$$tmp/want" || { echo 'generated code differs: run make gen' >&2; exit 1; }; }

pure: ## Tests of the pure rooms and the wire contract, the rules of the house, the index of cases
	$(GO) test -timeout 5m $(PURE)

# FILE=history.jsonl; FLAGS='-live -fenced': what is known of its callers (test/checker says what that means).
check-history: ## Judge what clients of a cluster saw, FILE=lines of JSON
	$(GO) run ./test/checker/historycheck $(FLAGS) '$(FILE)'

mutants: ## Break the product on purpose and demand that the named tests notice
	MUTANTS=1 $(GO) test -count=1 -timeout 40m ./test/mutants/...

# SEED=n replays one seed, KIND=power or leases says of which kind, RACE=1 that it ran under the race detector;
# TRACE=file keeps all that happened.
# SEEDS=n, LOSSES=n, LEASES=n: how many of each kind.
SIM = $(GO) test -count=1 -v $(if $(RACE),-race )-timeout 60m ./test/sim
sim: ## A partition of three in virtual time, under faults drawn from seeds. SEED=n replays one exactly
ifeq ($(SEED),)
	SIM_SEEDS=$(or $(SEEDS),2000) SIM_LOSSES=$(or $(LOSSES),1000) SIM_LEASES=$(or $(LEASES),200) $(SIM) -run '^(TestSeeds|TestNoAllowIsLost|TestALeaderThatWasReplaced)'
else
	SIM_SEED=$(SEED) SIM_KIND=$(KIND) SIM_TRACE=$(if $(TRACE),'$(abspath $(TRACE))') $(SIM) -run '^TestReplay$$'
endif

# What the bench runs, in a folder that git ignores.
BENCH := test/bench/bin

SUITE = $(if $(REPORT),REPORT='$(abspath $(REPORT))') $(GO) test -count=1 -v -run '^TestClientsSeeNoBrokenPromiseUnderFaults$$' ./test/faults

faults: ## Every fault once under load, judged by the checker. SEED=n replays, CELL=name runs one, REPORT=file writes JSON
	FAULTS=all $(SUITE) -timeout 30m

soak: ## Faults with new seeds, round after round, for so many HOURS
	FAULTS=soak HOURS=$(or $(HOURS),1) $(SUITE) -timeout 0

bench-tools: ## Build what the bench runs: the programs, its client, and an etcd to compare with
	@mkdir -p $(BENCH)
	$(GO) build -o $(BENCH)/ ./cmd/quotanode ./cmd/quotactl ./cmd/gateway
	$(GO) build -o $(BENCH)/bench ./test/bench
	$(GO) test -c -o $(BENCH)/fsm.test ./internal/fsm
	cd test/bench/etcd && $(GO) build -o ../bin/etcdload . && $(GO) build -o ../bin/etcd go.etcd.io/etcd/server/v3

# QUICK=1: the figures of one line, in less than three minutes. REPORT=file: all figures, as JSON. SEED=n: other draws.
bench: bench-tools ## Figures: three real nodes and an etcd side by side; without QUICK=1 all workloads, algorithms, replay
ifeq ($(QUICK),)
	$(GO) test -run '^$$' -bench . -benchmem -timeout 20m ./internal/limit
	$(GO) test -run '^$$' -bench '^BenchmarkState' -benchmem -timeout 20m ./internal/fsm
	$(GO) test -run '^$$' -bench . -benchtime 1x -timeout 20m ./test/bench
endif
	@$(BENCH)/bench -build=false -workload $(if $(QUICK),quick,all) $(if $(REPORT),-report '$(REPORT)') $(if $(SEED),-seed $(SEED))

# Programs and the image that holds them, in a folder that git ignores.
DIST  := dist
IMAGE ?= localhost/quorate:dev

programs: ## Build the programs as images hold them: static, without paths or names of this machine
	@mkdir -p $(DIST)/programs
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $(DIST)/programs/ ./cmd/quotanode ./cmd/gateway ./cmd/operator ./cmd/quotactl

image: programs ## The Dockerfile's image without a container engine: dist/quorate.tar. IMAGE=name:tag
	@tools/kube/image.sh $(DIST)/programs $(DIST)/quorate.tar '$(IMAGE)'

# tools/kube/README.md says what is built and started here, and what it costs.
helm: ## Build helm if it isn't there, and print where it is
	@tools/kube/build.sh helm && bash -euc '. tools/kube/env.sh; echo "$$KUBE_BIN/helm"'

kube: ## A real Kubernetes on this machine, of NODES=3; needs root
	@tools/kube/up.sh $(or $(NODES),3)

kube-down: ## Stop it, and forget what it held
	@tools/kube/down.sh

# Their tests skip what needs an API server where they aren't told of one. As many packages run at once as there are cores:
# the longest comes first.
ENVTESTS := ./test/operator ./test/chart ./test/crd

# -count=1: `go test` doesn't know what programs read that a test starts.
envtest: ## Tests with a real API server, which is built first: what it makes of our objects, and the operator beside it
	@command -v "$$($(GO) env CC)" >/dev/null || { echo 'envtest: no C compiler, which the race detector needs (package gcc)' >&2; exit 1; }
	@tools/kube/build.sh control helm
	bash -euc '. tools/kube/env.sh; KUBEBUILDER_ASSETS=$$KUBE_BIN HELM=$$KUBE_BIN/helm $(GO) test -race -count=1 -timeout 20m $(ENVTESTS)'

# STEPS=regexp: only these steps, and what all build on. KEEP=1 leaves the cluster. HISTORIES=folder keeps what callers saw.
# PREVIOUS=commit: what the upgrade comes from, in the place of the one before; none: no upgrade.
e2e: image ## Everything on a real Kubernetes of three nodes, under load; needs root
	@tools/kube/build.sh control node helm
	E2E=1 $(GO) test -count=1 -v -timeout 40m ./test/e2e
