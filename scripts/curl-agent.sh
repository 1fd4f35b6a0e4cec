#!/usr/bin/env bash
# A whole Beckon agent, to be read beside PROTOCOL.md, whose sections stand in brackets. For each command it starts the
# program CURL_AGENT_HOOK with the kind as argument and the payload, which the hook must check, on stdin; what that
# prints is the output. Without it, every command is rejected. With --leave, SIGTERM takes the node out of the cluster.
set -uo pipefail && umask 077 && LC_ALL=C # for lengths in bytes

say() { printf 'curl-agent: %s\n' "$*" >&2; }
die() { say "$1"; exit "${2:-1}"; }
nap() { sleep "$1" & wait $!; } # unlike sleep alone, it ends at a signal
reap() { jobs -p | xargs -r kill 2>/dev/null; }
get() { jq -r "$1" "$tmp/answer"; }
put() { cat >"$tmp/new" && sync "$tmp/new" && mv "$tmp/new" "$1" && sync "${1%/*}"; } # stdin becomes a file, on disk

call() { # PATH [JSON [ARGUMENT...]]: a GET, or a POST. Leaves $tmp/answer, of a refusal also $code and what comes $next
	good='' http=000 type='' range='' date='' tag='' code='' next='' detail=''
	curl -q -sS --connect-timeout 10 --max-time 60 --max-filesize 1048576 --connect-to "::$address" "${as[@]}" \
		-H 'X-Protocol: 1' -H 'X-Agent-Version: 0.1.0' ${2:+--json @-} "${@:3}" -o "$tmp/answer" \
		-w '%{http_code}|%{content_type}|%header{x-protocol-max}|%header{date}|%header{etag}\n' \
		"https://control-plane.beckon.internal/agent/v1/$1" <<<"${2-}" >"$tmp/head" 2>"$tmp/error" & # (1.2, 1.4)
	wait $! && IFS='|' read -r http type range date tag <"$tmp/head"
	case "$http ${type%%;*}" in # what is not the server's is weather (1.6)
	20[012]\ application/json) jq -es 'length == 1' "$tmp/answer" &>/dev/null && good=yes ;;
	304\ *) [[ $range && $* == *If-None-Match* ]] && good=yes ;;
	[45]??\ application/problem+json) read -r code next detail < <(
		get "select(.status == $http and .code) | \"\(.code) \(.then) \(.detail)\"" 2>/dev/null) ;;
	esac
	[[ $good ]] && failures=0 offset=$(($(date -d "${date:-now}" +%s) - $(date +%s))) && return # (5.2)
	say "$1: ${code:-weather}: ${detail:=HTTP $http $(<"$tmp/error")}"
	return 1
}
ask() { until call "$@"; do bear "$1" || return; done; } # calls until the server says yes or no
bear() { # PATH: waits as long as the refusal wants (14.1); where a repeat would get the same answer, it fails
	[[ $next == give_up || (! $joined && $next$code =~ slow|stop|revoked) ]] && return 1
	if [[ $code == node_revoked ]]; then : | put "$state/revoked"; die "revoked: join with a new token" 77 # (2.7)
	elif [[ $code == certificate_expired && $1 != renew ]] && renew; then return
	elif [[ $next == slow ]]; then nap 300
	else nap "$((1 + RANDOM % (failures < 4 ? 2 << failures++ : 30))).$((RANDOM % 10))"; fi # (1.9)
}

join() { # TOKEN: becomes a node (2.4), of a server that the pin has proved before it sees the token
	[[ $1 && $pin =~ ^[0-9a-f]{64}$ ]] || die "to join takes a token and a pin, which is 64 hex digits"
	key=$state/join.$(sha256sum <<<"$1" | cut -c1-16).key # the same one for each try with this token
	rm -rf "$state"/{trust,results,epoch} && mkdir "$state"/{trust,results} && as=(--insecure) # the pin counts here
	ask trust
	for pem in $(get '.data | fromjson.cas[] | @base64'); do
		base64 -d <<<"$pem" | openssl x509 -out "$tmp/crt" # one certificate, whatever the text has behind it
		[[ $(openssl x509 -in "$tmp/crt" -outform DER | sha256sum) != "$pin "* ]] || cp "$tmp/crt" "$state/trust/ca.crt"
	done
	[[ -e $state/trust/ca.crt ]] || die "$address does not prove itself with this pin, so the token was not sent"
	as=(--capath /dev/null --cacert "$state/trust/ca.crt") # else curl trusts what the machine trusts, too
	[[ -s $key ]] || openssl genpkey -algorithm ed25519 | put "$key" || die "cannot write to $state"
	ask join "$(csr "$key" | jq --arg token "$1" --arg host "$(uname -n)" \
		'. + {token: $token, hostname: $host, os: "linux", agent_version: "0.1.0"}')" || die "no join: $detail"
	for pem in $(get '.trust.data | fromjson.signing_certificates[] | @base64'); do # the connection vouches for them (2.3)
		base64 -d <<<"$pem" | openssl x509 -noout -pubkey >"$tmp/pub"
		cp "$tmp/pub" "$state/trust/$(openssl pkey -pubin -in "$tmp/pub" -outform DER | sha256sum | cut -c1-16)"
	done
	{ node=$(get .node_id) && sync "$state"/trust/* "$state/trust" && keep "$key"; } || die "this is no certificate for us"
	rm -f "$key" "$state/revoked"
}
csr() { openssl req -new -key "$1" -subj / | jq -Rs '{csr: .}'; }
keep() { # KEY: it and the certificate in the last answer become one file, if that is ours and the CA's (2.4, step 3)
	get .certificate >"$tmp/crt" && [[ $(name "$tmp/crt") == "$node" ]] &&
		[[ $(openssl x509 -in "$tmp/crt" -noout -pubkey) == "$(openssl pkey -in "$1" -pubout)" ]] &&
		openssl verify -no_check_time -no-CApath -no-CAstore -CAfile "$state/trust/ca.crt" "$tmp/crt" &>/dev/null &&
		cat "$1" "$tmp/crt" | put "$state/node.pem"
}
name() { openssl x509 -in "$1" -noout -subject -nameopt RFC2253 | cut -d= -f3; }
renew() { openssl genpkey -algorithm ed25519 >"$tmp/key" && ask renew "$(csr "$tmp/key")" && keep "$tmp/key"; }

beat() { # a heartbeat (5). The main loop does what its answer wants; at half life it renews (2.6)
	beats=$((beats + 1)) pause=30
	ask heartbeat "$(jq -n --arg host "$(uname -n)" "{n: $beats, cpu_cores: $(nproc), wake: {rung: \"long_poll\"},
		mem_bytes: $(($(getconf _PHYS_PAGES) * $(getconf PAGE_SIZE))), disk_bytes: $(df -B1 --output=size "$state" | tail -n1)
		} + if $hello then {hello: {hostname: \$host, os: \"linux\"}} else {} end")" || return
	hello=$(get .hello_wanted) pause=$(get 'if .hello_wanted then 0 else [.next_s, 1] | max | floor end')
	get '.cursors.commands // empty' >"$state/seen"
	get '.results_wanted[]? | select(test("^cmd_[0-9a-z-]+$"))' >"$state/wanted"
	openssl x509 -in "$state/node.pem" -noout -checkend $((38880 + 2 * 0x${node: -3} + offset)) >/dev/null || renew
}

verify() { # ENVELOPE: was it signed for this node, by a key we trust (3)? Its data is then in $tmp/data
	read -r seq key < <(jq -r '"\(.seq) \(.key)"' "$1" 2>/dev/null) &&
		[[ $seq =~ ^[1-9][0-9]{0,15}$ && $key =~ ^[0-9a-f]{16}$ ]] || return
	jq -j '.data | strings' "$1" >"$tmp/data" && jq -r .signature "$1" | base64 -d >"$tmp/sig" 2>/dev/null
	{ printf beckon-command:v1 && bytes 4 ${#node} && printf %s "$node" && bytes 16 "$seq" && cat "$tmp/data"; } >"$tmp/in"
	openssl pkeyutl -verify -pubin -inkey "$state/trust/$key" -rawin -in "$tmp/in" -sigfile "$tmp/sig" &>/dev/null
}
bytes() { printf "%0$1X" "$2" | basenc --base16 -d; } # a number, big endian, of so many hex digits
obey() { # ENVELOPE (6). What is to be told, should this process die in the next moment, is on disk before it (6.2)
	verify "$1" || { say "an envelope does not verify"; return; }
	read -r id kind ends start_by < <(jq -r '"\(.id) \(.kind) \(.expires_at) \(.start_by)"' "$tmp/data")
	[[ $id =~ ^cmd_[0-9a-z-]+$ ]] && result=$state/results/$id || return
	[[ $(jq -r .reason "$result" 2>/dev/null || echo asking) == asking ]] || { tell "$id"; return; } # it comes again (6.4)
	[[ ${CURL_AGENT_HOOK-} && $kind =~ ^(deploy|restart|stop|remove)$ && $ends != null && $start_by == null ]] ||
		{ record rejected invalid "this agent cannot do that: $kind $start_by" && tell "$id"; return; } # (6.3)
	record unknown asking "the agent ended before it began" || return
	ask "commands/$id/ack" '{}' || { record rejected "$code" "$detail"; return; } # (6.5)
	record unknown interrupted "the agent ended while it ran" || return
	timeout 300 "$CURL_AGENT_HOOK" "$kind" < <(jq .payload "$tmp/data") >"$tmp/output" 2>"$tmp/complaint" &
	if wait $! && jq -es 'length == 1' "$tmp/output" &>/dev/null; then
		jq '{status: "succeeded", output: (if (tojson | utf8bytelength) > 65536 then null else . end)}' "$tmp/output" |
			put "$result"
	else record failed "" "the hook failed or printed no JSON: $(tail -c 4000 "$tmp/complaint")"; fi
	tell "$id"
}
record() { jq -n --arg s "$1" --arg r "$2" --arg e "$3" '{status: $s, reason: $r, error: $e[-1000:]}' | put "$result"; }
tell() { ask "commands/$1/result" "$(<"$state/results/$1")"; } # (6.6): a refusal ends it as well
fetch() { # obeys what is in the queue (6.4), from seq $from on
	while [[ $from ]] && ask "commands?after=$from"; do
		mv "$tmp/answer" "$tmp/batch"
		fetched=$(jq .cursor "$tmp/batch") from=$(jq 'select(.more).commands[-1].seq' "$tmp/batch")
		while read -r item; do printf %s "$item" >"$tmp/item" && obey "$tmp/item"; done < <(jq -c '.commands[]' "$tmp/batch")
	done
	find "$state/results" -type f -mtime +37 -delete
}

leave() { # what a signal does (2.8)
	trap - TERM INT && reap
	[[ $leaving && $joined ]] && joined='' || exit 0 # from here on, node_revoked says that it has left
	ask leave '{}' || [[ $code == node_revoked ]] || die "this is still a node: $detail: $(get '.workloads[]?')"
	rm "$state/node.pem"
	die "this machine has left the cluster" 0
}
main() {
	joined='' leaving='' etag='' fetched='' failures=0 offset=0 passes=0 beats=0 hello=true
	[[ ${1-} != --leave ]] || { leaving=yes && shift; }
	[[ ${1-} =~ ^https://([^/]+)/?$ && ${2-} ]] || die "usage: $0 [--leave] https://HOST:PORT STATE [TOKEN PIN]" 2
	address=${BASH_REMATCH[1]} state=$2 tmp=$2/tmp pin=${4-}
	pin=$(tr -d ': \t\r\n' <<<"${pin,,}" | sed -E 's/^sha-?256(fingerprint=)?//') # (2.2)
	{ mkdir -p "$tmp/heart" && : >"$state/seen" && : >"$state/wanted"; } || die "cannot write to $state"
	trap reap EXIT && trap leave TERM INT
	[[ ! -e $state/revoked || ${3-} ]] || die "revoked: join with a new token" 77
	[[ -e $state/node.pem && ! -e $state/revoked ]] || join "${3-}"
	read -r epoch starts < <(cat "$state/epoch" 2>/dev/null || echo "$(openssl rand -hex 8) 0")
	echo "$epoch $((starts + 1))" | put "$state/epoch" || die "cannot write to $state"
	as=(--capath /dev/null --cacert "$state/trust/ca.crt" --cert "$state/node.pem"
		-H "X-Agent-Instance: $epoch.$((starts + 1)).$(openssl rand -hex 4)") # (1.4)
	node=$(name "$state/node.pem") joined=yes
	say "this is $node" && beat
	(trap reap EXIT && trap exit TERM && while nap "$pause" && kill -0 $$ 2>/dev/null; do tmp=$tmp/heart beat; done) &
	while :; do
		while read -r id; do [[ ! -e $state/results/$id ]] || tell "$id"; done <"$state/wanted"
		((passes++ % 6 == 0)) || { read -r seen <"$state/seen" && [[ $seen != "$fetched" ]]; } && from=0 fetch
		nap 1 # (4.1, 4.3). So 6 passes take less than 10 minutes
		if ! call 'cursors?wait=25' '' -H "If-None-Match: $etag"; then bear cursors || nap 30
		elif [[ $http == 200 ]]; then etag=$tag && get '.commands // empty' >"$state/seen"; fi
	done
}
[[ ${BASH_SOURCE[0]} != "$0" ]] || main "$@"
