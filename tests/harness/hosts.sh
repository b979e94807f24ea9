# SPDX-License-Identifier: BSD-3-Clause
#
# To be sourced by a test script that needs two hosts: they are network namespaces of this machine, connected by a
# virtual cable. Processes of one cannot reach the Unix sockets or addresses of the other, so they are two nodes. The
# script gets a folder $dir, which is removed at its end with the hosts and with what runs in the background.
#
#     can_make_hosts             makes them; else 1, and the reason is in $no_hosts
#     make_hosts [NAME]          the same, or skips the test with the reason; NAME: of one of several pairs
#     on_host 1 COMMAND...       runs a command on host 1 or 2, which are called $host1 and $host2
#     $dir/rsh HOST COMMAND      the same, as ssh does it, for launchers
#     start_ranks "2 1" COMMAND...  starts 2 ranks on host 1 and 1 rank on host 2, by variables; output to $dir/N
#     reap_ranks                 waits for all; their exit statuses are in $statuses
#     cut_cable, mend_cable
#     fail WORDS                 ends the test with the last lines of output: $dir/N, $dir/out, $dir/err
. "$srcdir/tests/harness/wait.sh"
host1=198.18.0.1 host2=198.18.0.2
hosts_id= made_hosts= no_hosts=
dir=$(mktemp -d) || exit 1
trap 'end_background; end_hosts; rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM

fail()
{
	echo "FAIL: $*"
	tail -n 8 "$dir"/[0-9]* "$dir/out" "$dir/err" 2>/dev/null
	exit 1
}

can_make_hosts()
{
	[ "$(id -u)" = 0 ] || { no_hosts="network namespaces need root"; return 1; }
	command -v ip >/dev/null || { no_hosts="there is no ip command (iproute2)"; return 1; }
	hosts_id=srt$$$1
	made_hosts="$made_hosts $hosts_id"
	ip netns add ${hosts_id}a 2>"$dir/netns" && ip netns add ${hosts_id}b 2>"$dir/netns" &&
		ip link add ${hosts_id}a netns ${hosts_id}a type veth peer name ${hosts_id}b netns ${hosts_id}b \
			2>"$dir/netns" || { no_hosts=$(cat "$dir/netns"); return 1; }
	ip -n ${hosts_id}a addr add $host1/24 dev ${hosts_id}a
	ip -n ${hosts_id}b addr add $host2/24 dev ${hosts_id}b
	for h in a b; do
		ip -n $hosts_id$h link set lo up
		ip -n $hosts_id$h link set $hosts_id$h up
	done
	await_cable
	cat >"$dir/rsh" <<END
#!/bin/sh
case \$1 in
$host1) in=${hosts_id}a ;;
$host2) in=${hosts_id}b ;;
*) echo "there is no host \$1" >&2 && exit 255 ;;
esac
shift
exec ip netns exec \$in sh -c "\$*"
END
	chmod +x "$dir/rsh"
}

make_hosts()
{
	can_make_hosts "$@" && return
	echo "SKIP: no two hosts: $no_hosts"
	exit 77
}
# UCX does not use an interface before that.
await_cable() { await cable_is_up 1 && await cable_is_up 2 || fail "the cable does not come up"; }
cable_is_up() { on_host "$1" ip -o link show "$(namespace "$1")" | grep -q "state UP"; }

end_hosts()
{
	for made in $made_hosts; do
		ip netns del ${made}a 2>/dev/null
		ip netns del ${made}b 2>/dev/null
	done
}

namespace() { [ "$1" = 1 ] && echo ${hosts_id}a || echo ${hosts_id}b; }
on_host()
{
	in=$(namespace "$1")
	shift
	ip netns exec "$in" "$@"
}
cut_cable() { ip -n ${hosts_id}b link set ${hosts_id}b down; }
mend_cable() { ip -n ${hosts_id}b link set ${hosts_id}b up; }

# ---- ranks that are started by variables, without a launcher
start_ranks()
{
	counts=$1
	shift
	rm -f "$dir"/[0-9]* # what an earlier job has printed
	world=0
	for n in $counts; do world=$((world + n)); done
	rank=0 host=0 ranks=
	for n in $counts; do
		host=$((host + 1)) local=0
		in=$(namespace $host)
		while [ $local -lt "$n" ]; do
			SHARDRT_BOOTSTRAP=tcp:${address:-$host1}:${port:-29600} SHARDRT_TOKEN=${token:-a-secret} SHARDRT_RANK=$rank \
				SHARDRT_WORLD_SIZE=$world SHARDRT_LOCAL_RANK=$local SHARDRT_LOCAL_SIZE=$n SRT_TEST_HOST=$host \
				ip netns exec "$in" "$@" >"$dir/$rank" 2>&1 &
			started
			ranks="$ranks $started"
			rank=$((rank + 1)) local=$((local + 1))
		done
	done
}

reap_ranks()
{
	statuses=
	for pid in $ranks; do
		reap "$pid" || return 1
		statuses="$statuses $status"
	done
}
