# The ways to use this repository. Each is one line that calls go or a script
# under scripts/, so that everything here works without make as well.

export GOTOOLCHAIN := go1.27.3

version := $(shell git describe --tags --always --dirty 2>/dev/null)
stamp   := -X github.com/beckon-fleet/beckon/internal/version.version=$(version)

.DEFAULT_GOAL := help
.PHONY: help demo build test check e2e generate bench clean

help: ## list these targets
	@sed -n 's/^\([a-z0-9]*\): ## /  make \1	/p' $(firstword $(MAKEFILE_LIST))

demo: ## start a server and an agent on this machine and deploy an app (DEMO_ONCE=1: check and exit)
	@scripts/demo.sh

build: ## build bin/beckon and bin/beckon-agent
	CGO_ENABLED=0 go build -trimpath -ldflags '$(stamp)' -o bin/ ./server/cmd/beckon ./agent/cmd/beckon-agent

test: ## run every test with the race detector, on SQLite and PostgreSQL
	@scripts/test.sh ./...

check: ## look for what tests do not see: format, vet, staticcheck, vulnerabilities, other platforms
	@scripts/check.sh

e2e: ## run only the tests that use the built programs
	@scripts/test.sh -count=1 ./e2e/...

generate: ## write the OpenAPI documents anew from package api
	@go run ./schema/generate

bench: ## measure the programs beside what is possible at all (three minutes)
	@scripts/bench.sh

clean: ## remove what build made
	rm -rf bin
