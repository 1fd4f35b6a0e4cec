#!/usr/bin/env bash
# A PostgreSQL cluster to throw away: in a folder of its own, on 127.0.0.1 and a
# free port, with a password of its own. It touches no other cluster.
#
#   scripts/postgres.sh run CMD…   runs CMD with BECKON_TEST_POSTGRES set to the
#                                  cluster's URL, and ends as CMD does
#   scripts/postgres.sh found      exits 0 when PostgreSQL is installed
set -euo pipefail
# shellcheck source=scripts/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

# programs prints the folder with the newest initdb there is.
programs() {
	local newest
	newest=$(find /usr/lib/postgresql -mindepth 3 -maxdepth 3 -name initdb 2>/dev/null | sort -V | tail -n 1)
	newest=${newest:-$(command -v initdb || true)}
	[[ -n $newest ]] && dirname "$newest"
}

# as_owner runs a command as the cluster's owner: PostgreSQL refuses root.
as_owner() {
	if [[ $EUID -eq 0 ]]; then runuser -u postgres -- "$@"; else "$@"; fi
}

# make_cluster makes a cluster in $folder/data that is fast and forgets.
make_cluster() {
	(umask 077 && head -c 18 /dev/urandom | base64 | tr '+/' '-_' >"$folder/password")
	: >"$folder/log"
	if [[ $EUID -eq 0 ]]; then chown -R postgres: "$folder"; fi
	as_owner "$bin/initdb" -D "$folder/data" -U beckon --pwfile="$folder/password" \
		--auth=scram-sha-256 -E UTF8 --locale=C.UTF-8 --no-sync >"$folder/log" 2>&1 || failed "make"
	cat >>"$folder/data/postgresql.conf" <<-'CONF'
		listen_addresses = '127.0.0.1'
		unix_socket_directories = ''
		max_connections = 200
		fsync = off
		synchronous_commit = off
		full_page_writes = off
	CONF
}

# start_cluster starts it on a free port. Somebody may take a port between the
# choice and the start, so it tries some.
start_cluster() {
	for _ in 1 2 3 4 5; do
		port=$((20000 + RANDOM % 12000))
		if as_owner "$bin/pg_ctl" -D "$folder/data" -o "-p $port" -l "$folder/log" -w -t 60 start >/dev/null 2>&1; then
			return
		fi
	done
	failed "start"
}

failed() {
	tail -n 20 "$folder/log" >&2
	die "could not $1 a PostgreSQL cluster in $folder: its log is above"
}

stop_cluster() {
	if [[ -f $folder/data/postmaster.pid ]]; then
		as_owner "$bin/pg_ctl" -D "$folder/data" -m immediate -w stop >/dev/null 2>&1 || say "could not stop the cluster in $folder"
	fi
	rm -rf "$folder"
}

run() {
	bin=$(programs) || die "PostgreSQL is missing: run scripts/setup.sh test"
	folder=$(mktemp -d /tmp/beckon-postgres.XXXXXX)
	trap stop_cluster EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM HUP
	cd /tmp # a folder its owner may enter
	make_cluster
	start_cluster
	cd "$here"
	BECKON_TEST_POSTGRES="postgres://beckon:$(<"$folder/password")@127.0.0.1:$port/postgres?sslmode=disable" "$@"
}

here=$PWD
case ${1:-} in
run)
	shift
	(($#)) || die "say what to run: scripts/postgres.sh run CMD…"
	run "$@"
	;;
found) programs >/dev/null ;;
*) die "say run CMD… or found" ;;
esac
