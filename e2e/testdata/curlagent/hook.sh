#!/bin/sh
# What curl-agent.sh starts for a command in the tests. It writes to HOOK_LOG
# what it was asked, and which process it is.
echo "$1 $$ $(tr -d '\n ')" >>"$HOOK_LOG"
case $1 in
stop) echo '{"deployment_ids": []}' ;;
restart) exec sleep 60 ;;
*)
	echo "there is no $1 here" >&2
	exit 3
	;;
esac
