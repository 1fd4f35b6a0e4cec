# shellcheck shell=bash
# What every script here begins with: the toolchain, the root of the
# repository, and how to talk to a person. It is sourced, never run.

export GOTOOLCHAIN=go1.27.3
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export root
me=$(basename "$0" .sh)

# say tells the person what is being done.
say() { printf '%s: %s\n' "$me" "$*" >&2; }

# die says what is wrong and what to do, and ends the script.
die() {
	say "$*"
	exit 1
}

# have reports whether a program is on the PATH.
have() { command -v "$1" >/dev/null 2>&1; }

# as_root runs a command as root: directly, or by sudo.
as_root() {
	if [[ $EUID -eq 0 ]]; then "$@"; else sudo "$@"; fi
}

# can_be_root reports whether as_root can work.
can_be_root() { [[ $EUID -eq 0 ]] || have sudo; }
