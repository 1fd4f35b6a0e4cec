#!/usr/bin/env bash
# Holds the OpenAPI documents to those of a release: what breaks its callers
# must come with a higher protocol.
#
#   scripts/compatible.sh OASDIFF TAG
set -euo pipefail
# shellcheck source=scripts/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$root"
(($# == 2)) || die "give the path of oasdiff and the tag of a release, as make check does"
oasdiff=$1
release=$2

# levels are where the protocol differs from what oasdiff takes for granted:
# callers take words that they do not know, and the operator surface refuses
# members and parameters that it does not know (PROTOCOL.md section 15).
levels() {
	cat <<-END
		response-property-enum-value-added info
		request-parameter-removed err
		request-property-removed err
	END
}

# protocol reads the integer from the source of package api.
protocol() { sed -n 's/^const Protocol = \([0-9]*\)$/\1/p'; }

was=$(git show "$release:api/protocol.go" | protocol)
now=$(protocol <api/protocol.go)
if ((now > was)); then
	say "the protocol rose from $was to $now since $release, so the documents may break with it"
	exit
fi
broken=()
for document in schema/openapi/agent.yaml schema/openapi/operator.yaml; do
	"$oasdiff" breaking --fail-on ERR --severity-levels <(levels) \
		<(git show "$release:$document") "$document" || broken+=("$document")
done
((${#broken[@]} == 0)) || die "${broken[*]}: this breaks callers of $release; undo it, or raise api.Protocol and serve both"
