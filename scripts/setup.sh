#!/usr/bin/env bash
# Makes this machine ready for the demo, the tests or the checks. It installs
# only what is missing, says what it does, and is quick when all is there.
#
#   scripts/setup.sh [demo|test|check]
set -euo pipefail
# shellcheck source=scripts/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

# docker_answers reports whether this user can talk to a Docker engine.
docker_answers() { have docker && timeout 10 docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

# wait_docker gives an engine that was just started 30 seconds to answer root.
wait_docker() {
	local end=$((SECONDS + 30))
	until as_root timeout 10 docker version >/dev/null 2>&1; do
		((SECONDS < end)) || return 1
		sleep 0.3
	done
}

# need_packages installs those of its arguments, as program=package, whose
# program is missing. A program may be a path.
need_packages() {
	local pair missing=()
	for pair in "$@"; do
		have "${pair%%=*}" || [[ -e ${pair%%=*} ]] || missing+=("${pair#*=}")
	done
	((${#missing[@]})) || return 0
	install "${missing[@]}"
}

# install installs Debian packages, or says which are missing.
install() {
	if ! have apt-get || ! can_be_root; then
		die "these are missing: $*. Install them (this script does it on Debian and Ubuntu, as root or with sudo)"
	fi
	say "installs: $*"
	local log
	log=$(mktemp)
	if ! { as_root apt-get -qq update &&
		as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "$@"; } >"$log" 2>&1; then
		tail -n 20 "$log" >&2
		rm -f "$log"
		die "apt-get could not install: $*"
	fi
	rm -f "$log"
}

# need_go wants any Go that can fetch the right one by itself, and lets it do so.
need_go() {
	have go || die "Go is missing: install Go 1.21 or newer (https://go.dev/doc/install); it fetches $GOTOOLCHAIN by itself"
	local found # asked from elsewhere: here go.mod may refuse an old one
	found=$(cd / && GOTOOLCHAIN=local go env GOVERSION 2>/dev/null) || found=""
	[[ $found =~ ^go1\.([0-9]+) && ${BASH_REMATCH[1]} -ge 21 ]] ||
		die "this Go (${found:-older than 1.19}) is too old to fetch $GOTOOLCHAIN: install Go 1.21 or newer (https://go.dev/doc/install)"
	need_packages /etc/ssl/certs/ca-certificates.crt=ca-certificates
	go version >/dev/null || die "Go could not fetch $GOTOOLCHAIN: see the line above; GOPROXY or GOFLAGS may forbid it"
}

# need_docker sees to an engine that answers. Without one it says so and goes
# on: what needs it then says so itself.
need_docker() {
	docker_answers && return
	if [[ -n ${DOCKER_HOST:-} ]]; then
		without_docker "DOCKER_HOST is $DOCKER_HOST, and no engine answers there"
		return
	fi
	if ! can_be_root; then
		without_docker "no engine answers, and starting one takes root or sudo"
		return
	fi
	# A subshell, for install ends the shell when it fails.
	if ! have docker && ! (install_docker); then
		without_docker "it could not be installed"
		return
	fi
	if ! as_root timeout 10 docker version >/dev/null 2>&1 && ! start_docker; then
		without_docker "its engine does not start here (a container without privileges cannot run one)"
		return
	fi
	docker_answers || share_socket || without_docker "this user may not use the engine: add it to the group docker and log in again"
}

# install_docker installs the engine and its command line, which newer Debians
# keep apart. Where the kernel has AppArmor the engine needs its parser.
install_docker() {
	install docker.io apparmor
	have docker || install docker-cli
}

# start_docker starts the engine as a service, or, where nothing manages
# services, in the background.
start_docker() {
	say "starts the Docker engine: service docker start"
	as_root service docker start >/dev/null 2>&1 && wait_docker && return
	as_root sh -c 'command -v dockerd' >/dev/null || return 1
	local log=/var/log/beckon-dockerd.log
	say "the service did not start; starts dockerd in the background, log in $log"
	as_root sh -c "setsid dockerd >$log 2>&1 </dev/null &"
	wait_docker
}

# share_socket lets this user use the engine's socket until the engine starts
# again; the group docker would do so for good.
share_socket() {
	[[ -S /var/run/docker.sock ]] || return 1
	say "lets $(id -un) use the engine's socket, until the engine starts again"
	have setfacl || (install acl) || return 1
	as_root setfacl -m "u:$(id -u):rw" /var/run/docker.sock && docker_answers
}

# without_docker says why there is no Docker and what follows.
without_docker() {
	say "no Docker: $*"
	say "goes on without it: the tests that need Docker skip (with BECKON_CI=1 they fail), and the demo runs its app as a process"
}

main() {
	need_go
	case ${1:-test} in
	demo)
		need_packages curl=curl jq=jq
		[[ ${DEMO_RUNTIME:-docker} != docker ]] || need_docker
		;;
	test)
		need_packages gcc=gcc /usr/include/stdlib.h=libc6-dev curl=curl jq=jq openssl=openssl
		"$root/scripts/postgres.sh" found || need_packages /usr/lib/postgresql=postgresql
		need_docker
		;;
	check)
		need_packages shellcheck=shellcheck
		;;
	*)
		die "there is no \"$1\" to set up: say demo, test or check"
		;;
	esac
}

main "$@"
