#!/usr/bin/env bash
# Measures the built programs beside their limits and prints a table; it takes
# about three minutes. What is measured gets the first CPU to itself, what
# calls it the others. Arguments go to the benchmarks.
#
#   scripts/bench.sh -test.bench Wake -test.count 6   one of them, again and again: benchstat reads it
#   BENCH_NODES=100 scripts/bench.sh                  with fewer idle nodes than 1,000
set -euo pipefail
# shellcheck source=scripts/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$root"

dir=$(mktemp -d "${TMPDIR:-/tmp}/beckon-bench.XXXXXX")
trap 'rm -rf "$dir"' EXIT
go test -c -o "$dir/bench.test" ./e2e/bench
CGO_ENABLED=0 go build -o "$dir" ./server/cmd/beckon ./agent/cmd/beckon-agent # what is built once more on fewer CPUs is then quick

pin=()
last=$(($(nproc --all) - 1))
if ((last > 0)) && have taskset && taskset -c "0-$last" true 2>/dev/null; then
	export BENCH_CPU=0
	pin=(taskset -c "1-$last")
fi
cd e2e/bench
"${pin[@]}" "$dir/bench.test" -test.run '^$' -test.bench . -test.benchtime 1x -test.timeout 10m "$@"
