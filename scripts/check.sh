#!/usr/bin/env bash
# Looks for what the tests do not see. Every check runs, even after one failed;
# the exit code says whether all were clean. Tools and the vulnerability
# database are built from Go modules and kept in the user's cache folder.
set -euo pipefail
# shellcheck source=scripts/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$root"

cache=${XDG_CACHE_HOME:-$HOME/.cache}/beckon
tools=$cache/tools-$GOTOOLCHAIN # govulncheck must be built by the toolchain it scans with
failed=()

# check runs a check by its name, and shows what it printed only when it failed.
check() {
	local name=$1 began=$EPOCHREALTIME output
	shift
	if output=$("$@" 2>&1); then
		say "$(printf '%-24s ok  %4d ms' "$name" $(((${EPOCHREALTIME/[.,]/} - ${began/[.,]/}) / 1000)))"
		return
	fi
	say "$(printf '%-24s FAILED' "$name")"
	printf '%s\n' "$output" >&2
	failed+=("$name")
}

build_tools() { GOBIN=$tools go -C scripts/tools install tool; }

formatted() {
	local files
	files=$("$tools/gofumpt" -l .) || return
	[[ -z $files ]] || {
		printf 'these files are not formatted; run %s -w on them:\n%s\n' "$tools/gofumpt" "$files"
		return 1
	}
}

# tidy holds the module files to what the code imports. SQLite's generated code
# works with one version of its C library only, so that one must not drift.
tidy() {
	go mod tidy -diff && go mod verify || return
	local wanted found
	wanted=$(awk '$1 == "modernc.org/libc" { print $2 }' "$(go list -m -f '{{.Dir}}' modernc.org/sqlite)/go.mod")
	found=$(go list -m -f '{{.Version}}' modernc.org/libc)
	[[ $wanted == "$found" ]] || {
		echo "modernc.org/libc is $found, and modernc.org/sqlite wants $wanted: run go get modernc.org/libc@$wanted"
		return 1
	}
}

# vulnerabilities scans with a database made from the module that holds it, so
# that it needs no network once the module is there.
vulnerabilities() {
	local db
	db=$cache/vulndb-$(go -C scripts/tools list -m -f '{{.Version}}' golang.org/x/vulndb) || return
	[[ -d $db ]] || make_database "$db" || return
	"$tools/govulncheck" -db "file://$db" ./...
}

make_database() {
	local source
	source=$(go -C scripts/tools list -m -f '{{.Dir}}' golang.org/x/vulndb) || return
	rm -rf "$1.new"
	"$tools/indexdb" -vulns "$source/data/osv" -out "$1.new" && mv -T "$1.new" "$1"
}

builds_for() { CGO_ENABLED=0 GOOS=${1%/*} GOARCH=${1#*/} go build ./...; }

scripts_clean() { shellcheck -x scripts/*.sh .ci/run; }

"$root/scripts/setup.sh" check
mkdir -p "$cache"
check tools build_tools
check gofumpt formatted
check vet go vet ./...
check "vet with faults" go vet -tags faults ./...
check staticcheck "$tools/staticcheck" ./...
check modules tidy
check shellcheck scripts_clean
for surface in agent operator; do
	check "OpenAPI $surface" "$tools/oasdiff" validate "schema/openapi/$surface.yaml"
done
if release=$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null); then
	check "contract of $release" scripts/compatible.sh "$tools/oasdiff" "$release"
else
	say "there is no release tag yet, so the OpenAPI documents are compared with none"
fi
check govulncheck vulnerabilities
for platform in linux/amd64 linux/arm64 linux/arm darwin/arm64; do
	check "build $platform" builds_for "$platform"
done
((${#failed[@]} == 0)) || die "failed: ${failed[*]}"
