#!/usr/bin/env bash
# Runs the tests with the race detector, on SQLite and on a PostgreSQL to throw
# away. Arguments go to go test.
#
#   scripts/test.sh [-run NAME] [./PACKAGE/...]
set -euo pipefail
# shellcheck source=scripts/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$root"

"$root/scripts/setup.sh" test
(($#)) || set -- ./...
export CGO_ENABLED=1 # of the race detector
if [[ -n ${BECKON_TEST_POSTGRES:-} ]]; then
	exec go test -race -timeout 25m "$@"
fi
exec "$root/scripts/postgres.sh" run go test -race -timeout 25m "$@"
