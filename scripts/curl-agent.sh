#!/usr/bin/env bash
# A whole Beckon agent in bash, curl, openssl and jq, to be read beside PROTOCOL.md, whose sections stand in the
# comments. It joins with TOKEN and PIN where STATE holds no identity. For each command it starts the program
# CURL_AGENT_HOOK with the kind as argument and the payload, which the hook must check, on stdin; what that prints is
# the output. Without a hook it rejects every command. With --leave, SIGTERM takes the node out of the cluster.
#   curl-agent.sh [--leave] https://HOST:PORT STATE [TOKEN PIN]       (exit code 77: the node was revoked)
set -uo pipefail
umask 077
LC_ALL=C # lengths are in bytes

say() { printf 'curl-agent: %s\n' "$*" >&2; }
die() { say "$1"; exit "${2:-1}"; }
now() { cut -d. -f1 /proc/uptime; } # seconds, of a clock that nobody sets
nap() { sleep "$1" & wait $!; }     # unlike sleep alone, it ends at a signal
reap() { jobs -p | xargs -r kill 2>/dev/null; }
get() { jq -r "$1" "$tmp/answer"; }
put() { cat >"$tmp/new" && sync "$tmp/new" && mv "$tmp/new" "$1" && sync "${1%/*}"; } # stdin becomes a file, on disk

# call PATH [JSON [CURL ARGUMENT...]]: a GET, or a POST of JSON (1.4). The answer is in $tmp/answer; a refusal leaves
# its $code and $then (1.6), which weather has not. curl wants the name that section 1.2 fixes.
call() {
	local good='' type='' range='' date=''
	http=000 code='' then='' detail='' tag=''
	printf '%s' "${2-}" >"$tmp/request" && : >"$tmp/answer" || return
	curl -q -sS --connect-timeout 10 --max-time 60 --max-filesize 1048576 --connect-to "::$address" "${as[@]}" \
		-H 'X-Protocol: 1' -H 'X-Agent-Version: 0.1.0' ${2:+--json "@$tmp/request"} "${@:3}" -o "$tmp/answer" \
		-w '%{http_code}|%{content_type}|%header{x-protocol-max}|%header{date}|%header{etag}\n' \
		"https://control-plane.beckon.internal$1" >"$tmp/head" 2>"$tmp/error" &
	wait $! && IFS='|' read -r http type range date tag <"$tmp/head"
	case "$http ${type%%;*}" in
	20[012]\ application/json) jq -es 'length == 1' "$tmp/answer" >/dev/null 2>&1 && good=yes ;;
	304\ *) [[ $range && $* == *If-None-Match* ]] && good=yes ;;
	[45]??\ application/problem+json)
		read -r code then detail < <(get "select(.status == $http and .code) | \"\(.code) \(.then) \(.detail)\"" 2>/dev/null) ;;
	esac
	[[ $good ]] && failures=0 offset=$(($(date -d "${date:-now}" +%s) - $(date +%s))) && return # 5.2
	say "$1: ${code:-weather}: ${detail:=HTTP $http $(<"$tmp/error")}"
	return 1
}

# ask: call, until the server says yes or no.
ask() { until call "$@"; do bear "$1" || return; done; }

# bear PATH (14.1): waits as long as the refusal in hand asks for, unless a repeat would get the same answer.
bear() {
	case $then:$code in
	give_up:*) return 1 ;;
	*:node_revoked) # 2.7
		[[ $joined ]] || return
		: | put "$state/revoked"
		die "revoked: join with a new token" 77 ;;
	slow:*)
		[[ $joined ]] || return
		[[ $code == certificate_expired && $1 != */renew ]] && renew && return
		nap 300 ;;
	*) nap "$((1 + RANDOM % (failures < 4 ? 2 << failures++ : 30))).$((RANDOM % 10))" ;; # 1.9
	esac
}

# verify ENVELOPE (3): was it signed for this node, by a key we trust? Its data is then in $tmp/data.
verify() {
	local seq key
	read -r seq key < <(jq -r '"\(.seq) \(.key)"' "$1" 2>/dev/null)
	[[ $seq =~ ^[1-9][0-9]{0,15}$ && $key =~ ^[0-9a-f]{16}$ && -e $state/trust/$key ]] || return
	jq -j '.data | strings' "$1" >"$tmp/data" && jq -r .signature "$1" | base64 -d >"$tmp/signature" 2>/dev/null
	{ printf beckon-command:v1 && bytes 4 ${#node} && printf '%s' "$node" && bytes 16 "$seq" && cat "$tmp/data"; } >"$tmp/input"
	openssl pkeyutl -verify -pubin -inkey "$state/trust/$key" -rawin -in "$tmp/input" -sigfile "$tmp/signature" >/dev/null 2>&1
}
bytes() { printf "%0$1X" "$2" | basenc --base16 -d; } # a number, big endian, of so many hex digits

# join TOKEN (2.4): becomes a node, of a server that the pin has proved before it sees the token.
join() {
	local key pem
	[[ $1 && $pin =~ ^[0-9a-f]{64}$ ]] || die "to join takes a token and a pin: 64 hex digits, the SHA-256 of the CA's certificate"
	rm -rf "$state"/{trust,results,epoch} && mkdir "$state/trust" && as=(--insecure) # of this answer only the pin counts
	ask /agent/v1/trust
	for pem in $(get '.data | fromjson.cas[] | @base64'); do # a text could hold a second certificate, which openssl drops
		base64 -d <<<"$pem" | openssl x509 -out "$tmp/crt"
		[[ $(openssl x509 -in "$tmp/crt" -outform DER | sha256sum) != "$pin "* ]] || cp "$tmp/crt" "$state/trust/ca.crt"
	done
	[[ -e $state/trust/ca.crt ]] || die "$address does not prove itself with this pin, so the token was not sent: check both"
	as=(--capath /dev/null --cacert "$state/trust/ca.crt") # without --capath, what the machine trusts would count as well
	key=$state/join.$(sha256sum <<<"$1" | cut -c1-16).key # the same one for each try with this token
	[[ -s $key ]] || openssl genpkey -algorithm ed25519 | put "$key" || die "cannot write to $state"
	ask /agent/v1/join "$(csr "$key" | jq --arg token "$1" --arg host "$(uname -n)" \
		'. + {token: $token, hostname: $host, os: "linux", agent_version: "0.1.0"}')" || die "no join: $detail"
	for pem in $(get '.trust.data | fromjson.signing_certificates[] | @base64'); do # 2.3: the connection vouches for them
		base64 -d <<<"$pem" | openssl x509 -noout -pubkey >"$tmp/pub"
		cp "$tmp/pub" "$state/trust/$(openssl pkey -pubin -in "$tmp/pub" -outform DER | sha256sum | cut -c1-16)"
	done
	sync "$state"/trust/* "$state/trust" && node=$(get .node_id) && keep "$key" || die "the certificate is not for us"
	rm -f "$key" "$state/revoked"
}
csr() { openssl req -new -key "$1" -subj / | jq -Rs '{csr: .}'; }

# keep KEY: the certificate in the last answer and its key become one file, if it is ours and the CA's (2.4, step 3).
keep() {
	get .certificate >"$tmp/crt" && [[ $(name "$tmp/crt") == "$node" ]] &&
		[[ $(openssl x509 -in "$tmp/crt" -noout -pubkey) == "$(openssl pkey -in "$1" -pubout)" ]] &&
		openssl verify -no_check_time -no-CApath -no-CAstore -CAfile "$state/trust/ca.crt" "$tmp/crt" >/dev/null 2>&1 &&
		cat "$1" "$tmp/crt" | put "$state/node.pem"
}
name() { openssl x509 -in "$1" -noout -subject -nameopt RFC2253 | cut -d= -f3; }
renew() { openssl genpkey -algorithm ed25519 >"$tmp/key" && ask /agent/v1/renew "$(csr "$tmp/key")" && keep "$tmp/key"; } # 2.6

# beat (5): a heartbeat. What its answer wants done is left to work; the certificate is renewed at half life (2.6).
beat() {
	beats=$((beats + 1)) pause=30
	ask /agent/v1/heartbeat "$(jq -n --arg host "$(uname -n)" --arg kernel "$(uname -r)" "{n: $beats, cpu_cores: $(nproc),
		mem_bytes: $(($(getconf _PHYS_PAGES) * $(getconf PAGE_SIZE))), disk_bytes: $(df -B1 --output=size "$state" | tail -n1),
		wake: {rung: \"long_poll\", reason: \"a script\"}} + if $hello then
		{hello: {hostname: \$host, os: \"linux\", kernel: \$kernel, release: {kind: \"manual\"}}} else {} end")" || return
	hello=$(get .hello_wanted) pause=$(get 'if .hello_wanted then 0 else [.next_s, 1] | max | floor end')
	get '.cursors.commands // empty' >"$state/seen"
	get '.results_wanted[]? | select(test("^cmd_[0-9a-z-]+$"))' >"$state/wanted"
	openssl x509 -in "$state/node.pem" -noout -checkend $((38880 + 2 * 0x${node: -3} + offset)) >/dev/null || renew
}
# heart beats beside the work, with its own folder for answers, as long as the agent lives.
heart() {
	trap reap EXIT
	trap exit TERM
	tmp+=/heart
	while nap "$pause" && kill -0 $$ 2>/dev/null; do beat; done
}

# obey ENVELOPE (6): does what a command says, if it verifies and the server lets it, and tells the result. What there
# would be to tell, if this process died in the next moment, is on disk before that moment (6.2, 6.9).
obey() {
	local id kind
	verify "$1" || { say "an envelope does not verify: $(<"$1")"; return; }
	read -r id kind < <(jq -r '"\(.id) \(.kind)"' "$tmp/data") && [[ $id =~ ^cmd_[0-9a-z-]+$ ]] || return
	[[ $(jq -r .reason "$state/results/$id" 2>/dev/null || echo asking) == asking ]] || { tell "$id"; return; } # 6.4
	[[ ${CURL_AGENT_HOOK-} && $kind =~ ^(deploy|restart|stop|remove)$ && $(jq .expires_at "$tmp/data") != null ]] ||
		{ record "$id" rejected invalid "this agent cannot do $kind" && tell "$id"; return; }
	record "$id" unknown asking "the agent ended before it began" || return
	ask "/agent/v1/commands/$id/ack" '{}' || { record "$id" rejected "$code" "$detail"; return; } # 6.5
	jq -e "(.start_by // empty | sub(\"[.][0-9]+\"; \"\") | fromdate) < now + $offset" "$tmp/data" >/dev/null &&
		{ record "$id" rejected too_late "its start_by has passed" && tell "$id"; return; } # 6.3
	record "$id" unknown interrupted "the agent ended while it ran" || return
	timeout 300 "$CURL_AGENT_HOOK" "$kind" < <(jq .payload "$tmp/data") >"$tmp/output" 2>"$tmp/complaint" &
	if wait $! && jq -es 'length == 1' "$tmp/output" >/dev/null 2>&1; then
		jq -c '{status: "succeeded"} + if (tojson | utf8bytelength) > 65536 then {} else {output: .} end' "$tmp/output" |
			put "$state/results/$id"
	else
		record "$id" failed "" "the hook failed or printed no JSON: $(tail -c 4000 "$tmp/complaint")"
	fi
	tell "$id"
}
# record ID STATUS REASON ERROR: puts down a result (6.6).
record() { jq -n --arg s "$2" --arg r "$3" --arg e "$4" '{status: $s, reason: $r, error: $e[-1000:]}' | put "$state/results/$1"; }
tell() { ask "/agent/v1/commands/$1/result" "$(<"$state/results/$1")"; } # a refusal ends it as well

# fetch (6.4): obeys what is in the queue.
fetch() {
	local from=0 item
	due=$(($(now) + 600))
	while [[ $from ]] && ask "/agent/v1/commands?after=$from"; do
		mv "$tmp/answer" "$tmp/batch"
		fetched=$(jq .cursor "$tmp/batch") from=$(jq 'select(.more).commands[-1].seq' "$tmp/batch")
		while read -r item; do printf '%s' "$item" >"$tmp/item" && obey "$tmp/item"; done < <(jq -c '.commands[]' "$tmp/batch")
	done
	find "$state/results" -type f -mtime +37 -delete
}

# work: does what is to be done, and waits until the cursors change (4.3), or 25 seconds.
work() {
	local id seen
	while read -r id; do [[ ! -e $state/results/$id ]] || tell "$id"; done <"$state/wanted"
	seen=$(<"$state/seen")
	if [[ $seen && $seen != "$fetched" ]] || (($(now) >= due)); then fetch; fi
	nap 1 # 4.1, 4.3
	if ! call '/agent/v1/cursors?wait=25' '' -H "If-None-Match: $etag"; then bear /agent/v1/cursors
	elif [[ $http == 200 ]]; then etag=$tag && get '.commands // empty' >"$state/seen"; fi
}

# leave is what a signal does (2.8).
leave() {
	trap - TERM INT
	reap
	[[ $leaving && $joined ]] || exit 0
	joined='' # from here on, node_revoked says that it has left
	ask /agent/v1/leave '{}' || [[ $code == node_revoked ]] || die "this is still a node: $detail: $(get '.workloads[]?')"
	rm "$state/node.pem" && say "this machine has left the cluster"
	exit 0
}

main() {
	local epoch starts joined='' leaving='' etag='' fetched='' failures=0 offset=0 due=0 beats=0 pause=0 hello=true
	[[ ${1-} != --leave ]] || { leaving=yes && shift; }
	[[ ${1-} =~ ^https://([^/]+)/?$ && ${2-} ]] || die "usage: curl-agent.sh [--leave] https://HOST:PORT STATE [TOKEN PIN]" 2
	address=${BASH_REMATCH[1]} state=$2 tmp=$2/tmp pin=${4-}
	pin=$(tr -d ': \t\r\n' <<<"${pin,,}" | sed -E 's/^sha-?256(fingerprint=)?//') # 2.2
	mkdir -p "$tmp/heart" || die "cannot write to $state"
	trap reap EXIT
	trap leave TERM INT
	[[ ! -e $state/revoked || ${3-} ]] || die "revoked: join with a new token" 77
	[[ -e $state/node.pem && ! -e $state/revoked ]] || join "${3-}"
	mkdir -p "$state/results"
	read -r epoch starts < <(cat "$state/epoch" 2>/dev/null || echo "$(openssl rand -hex 8) 0")
	echo "$epoch $((starts + 1))" | put "$state/epoch" || die "cannot write to $state"
	as=(--capath /dev/null --cacert "$state/trust/ca.crt" --cert "$state/node.pem"
		-H "X-Agent-Instance: $epoch.$((starts + 1)).$(openssl rand -hex 4)") # 1.4
	node=$(name "$state/node.pem") joined=yes
	say "this is $node"
	: >"$state/wanted" && : >"$state/seen" && beat
	heart &
	while :; do work; done
}

[[ ${BASH_SOURCE[0]} != "$0" ]] || main "$@"
