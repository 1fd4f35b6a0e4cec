#!/usr/bin/env bash
# The product on one machine: builds it, starts a server and an agent, joins the
# agent as node web-1, deploys a small web program, and says where all of it is.
# The program runs as a container, or without Docker as a process of the agent's.
# It runs until Ctrl-C and leaves nothing behind.
#
#   DEMO_ONCE=1            ends when the app has answered: 0, or 1 when not
#   DEMO_RUNTIME=process   does without Docker though there is one
set -euo pipefail
# shellcheck source=scripts/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$root"

dir='' server='' agent='' node_id='' image='' # what cleanup has to undo
node=web-1
app=hello
runtime=${DEMO_RUNTIME:-docker}

# --- undoing ---------------------------------------------------------------

# stop ends a process of ours: politely, and after ten seconds for sure.
stop() {
	[[ -n $1 ]] || return 0
	kill "$1" 2>/dev/null || return 0
	local end=$((SECONDS + 10))
	while kill -0 "$1" 2>/dev/null; do
		((SECONDS < end)) || kill -9 "$1" 2>/dev/null || true
		sleep 0.1
	done
}

# remove_app has the agent end what it runs, while both are there to do so.
remove_app() {
	[[ -n $node_id ]] || return 0
	timeout 30 bin/beckon app remove "$app" --timeout 20s
}

# remove_containers removes what the agent of this demo made, and nothing else.
remove_containers() {
	[[ -n $node_id && $runtime == docker ]] || return 0
	timeout 30 docker ps -aq --filter "label=beckon.node=$node_id" | xargs -r timeout 60 docker rm -f -v
}

# remove_image removes the image, and its short name where that is still ours.
remove_image() {
	[[ -n $image ]] || return 0
	local id
	id=$(docker image inspect -f '{{.Id}}' "$image") || return 0
	if [[ $(docker image inspect -f '{{.Id}}' beckon-demo:latest) == "$id" ]]; then docker rmi beckon-demo:latest; fi
	docker rmi "$image"
}

# cleanup goes on whatever fails in it, and cannot be interrupted.
cleanup() {
	local code=$?
	trap '' INT TERM HUP
	set +e
	if ((code == 1)) && [[ -n $dir ]]; then show_logs; fi
	remove_app >/dev/null 2>&1
	stop "$agent"
	remove_containers >/dev/null 2>&1
	stop "$server"
	remove_image >/dev/null 2>&1
	[[ -z $dir ]] || rm -rf "$dir"
	exit "$code"
}

# show_logs shows how the logs end: they go with the folder.
show_logs() {
	local log
	for log in server agent cli; do
		[[ -s $dir/$log.log ]] || continue
		say "the last lines of $log.log:"
		tail -n 15 "$dir/$log.log" >&2
	done
}

# interrupted ends the demo as asked, which is no failure.
interrupted() {
	printf '\n' >&2
	say "stops, and removes what it made"
	exit 0
}

# --- doing -----------------------------------------------------------------

# free_port prints the port of 127.0.0.1 it was asked for when that is free,
# else another.
free_port() {
	local port=$1
	while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
		port=$((20000 + RANDOM % 12000))
	done
	echo "$port"
}

# within runs a command until it succeeds, for at most so many seconds, and
# ends early when the server or the agent has gone.
within() {
	local end=$((SECONDS + $1)) pid
	shift
	until "$@" >/dev/null 2>&1; do
		((SECONDS < end)) || return 1
		for pid in $server $agent; do
			kill -0 "$pid" 2>/dev/null || return 1
		done
		sleep 0.1
	done
}

# ask asks a listener on this machine; a proxy has no part in it.
ask() { curl -sf --noproxy '*' --max-time 5 "$@"; }

start_server() {
	local agent_port operator_port
	agent_port=$(free_port 8443)
	operator_port=$(free_port 8080)
	export BECKON_URL=http://127.0.0.1:$operator_port
	unset BECKON_CA_SHA256
	say "starts the server on $BECKON_URL, for agents on https://127.0.0.1:$agent_port"
	# Apart from this script, so that Ctrl-C reaches the script alone.
	setsid bin/beckon server --data "$dir/server" --agent-listen "127.0.0.1:$agent_port" \
		--operator-listen "127.0.0.1:$operator_port" --agent-url "https://127.0.0.1:$agent_port" \
		>"$dir/server.out" 2>"$dir/server.log" </dev/null &
	server=$!
	within 30 ask "$BECKON_URL/readyz" || die "the server did not become ready"
	BECKON_TOKEN=$(sed -n 's/^operator token: *//p' "$dir/server.out")
	[[ -n $BECKON_TOKEN ]] || die "the server printed no operator token"
	export BECKON_TOKEN
	cat >"$dir/env" <<-ENV
		export BECKON_URL=$BECKON_URL
		export BECKON_TOKEN=$BECKON_TOKEN
		export PATH=$(printf %q "$root/bin"):\$PATH
	ENV
}

start_agent() {
	local line words
	line=$(bin/beckon token create --name "$node" 2>>"$dir/cli.log") || die "the server made no join token"
	say "joins this machine as node $node"
	read -ra words <<<"$line"
	PATH=$root/bin:$PATH setsid "${words[@]}" --state "$dir/agent" >"$dir/agent.log" 2>&1 </dev/null &
	agent=$!
	within 30 online || die "the node did not come online"
	node_id=$(bin/beckon node show "$node" -o json | jq -r .id)
}

online() { bin/beckon node show "$node" -o json | jq -e '.presence == "online"'; }

# make_program makes what is to run: one static program.
make_program() {
	mkdir "$dir/program"
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$dir/program/demoweb" ./scripts/demoweb
}

# make_image makes an image that holds the program: it needs no builder and no
# registry. The short name is for the examples of the README.
make_image() {
	image=beckon-demo:${dir##*.}
	tar -C "$dir/program" -c demoweb |
		docker import --change 'ENTRYPOINT ["/demoweb"]' --change 'EXPOSE 8080' --change 'USER 65534:65534' - "$image" >/dev/null
	docker tag "$image" beckon-demo:latest
}

deploy() {
	local what=(app put "$app" --image "$image")
	[[ $runtime == docker ]] || what=(app push "$app" "$dir/program" --command ./demoweb)
	say "deploys the app $app, as a ${runtime/docker/container}"
	bin/beckon "${what[@]}" --port 8080 --node "$node" --observe 2s \
		--env "NODE=$node" --env "APP=$app" >>"$dir/cli.log" 2>&1 || die "the server did not take the app"
	bin/beckon deploy "$app" --timeout 2m >>"$dir/cli.log" 2>&1 || die "the app does not run"
	local publish
	publish=$(bin/beckon deployment list --app "$app" -o json | jq -r '.items[0].instance.publish')
	url=http://$publish
	within 20 ask "$url" || die "the app runs, but does not answer on $url"
}

# held prints how many milliseconds lay between the POST of the deploy and the
# agent holding its command.
held() {
	local created acked
	read -r created acked < <(bin/beckon command list --app "$app" -o json |
		jq -r '.items | map(select(.kind == "deploy")) | .[0] | "\(.created_at) \(.acked_at)"')
	echo $(($(date -d "$acked" +%s%3N) - $(date -d "$created" +%s%3N)))
}

summary() {
	cat <<-TEXT

		$(bin/beckon node list)

		  App       $url
		  Try       curl $url
		  Speed     the agent held the command $1 ms after the POST

		  More      in another terminal: source $dir/env
		            then beckon status, beckon app show $app, or the README's curl lines
		  Data      $dir/server and $dir/agent
		  Logs      $dir/server.log and $dir/agent.log
		  Programs  $root/bin/beckon and $root/bin/beckon-agent

	TEXT
}

main() {
	[[ $runtime == docker || $runtime == process ]] || die "DEMO_RUNTIME is docker or process, not \"$runtime\""
	"$root/scripts/setup.sh" demo
	if [[ $runtime == docker ]] && ! timeout 10 docker version >/dev/null 2>&1; then
		say "no Docker engine answers, so the app runs as a process of the agent's"
		runtime=process
	fi
	trap cleanup EXIT
	trap interrupted INT TERM HUP
	dir=$(mktemp -d "${TMPDIR:-/tmp}/beckon-demo.XXXXXX")
	say "builds the programs"
	make -s build
	make_program
	[[ $runtime != docker ]] || make_image
	start_server
	start_agent
	deploy
	local ms
	ms=$(held)
	if [[ ${DEMO_ONCE:-} == 1 ]]; then
		say "the app answered on $url; the agent held the command $ms ms after the POST"
		return
	fi
	summary "$ms"
	say "runs until Ctrl-C, which removes all of it"
	wait -n "$server" "$agent" || true
	die "the server or the agent has ended by itself"
}

main
