# SPDX-License-Identifier: BSD-3-Clause
#
# To be sourced by a test script that needs two hosts, after wait.sh: they are network namespaces of this
# machine, connected by a virtual cable. Processes of one cannot reach the Unix sockets or addresses of the
# other, so they are two nodes.
#
#     make_hosts                 skips the test, with the reason, if that cannot be done
#     trap 'end_hosts; ...' EXIT
#     on_host 1 COMMAND...       runs a command on host 1 or 2
#     start_ranks "2 1" COMMAND...  starts 2 ranks on host 1 and 1 rank on host 2, by variables; output to $dir/N
#     reap_ranks                 waits for all; their exit statuses are in $statuses
#     cut_cable, mend_cable
host1=198.18.0.1 host2=198.18.0.2

make_hosts()
{
	[ "$(id -u)" = 0 ] || skip_hosts "network namespaces need root"
	command -v ip >/dev/null || skip_hosts "there is no ip command (iproute2)"
	hosts_id=srt$$
	ip netns add ${hosts_id}a 2>"$dir/netns" || skip_hosts "$(cat "$dir/netns")"
	ip netns add ${hosts_id}b
	ip link add ${hosts_id}a netns ${hosts_id}a type veth peer name ${hosts_id}b netns ${hosts_id}b \
		2>"$dir/netns" || skip_hosts "$(cat "$dir/netns")"
	ip -n ${hosts_id}a addr add $host1/24 dev ${hosts_id}a
	ip -n ${hosts_id}b addr add $host2/24 dev ${hosts_id}b
	for h in a b; do
		ip -n $hosts_id$h link set lo up
		ip -n $hosts_id$h link set $hosts_id$h up
	done
	# UCX does not use an interface before that.
	await cable_is_up 1 && await cable_is_up 2 || { echo "FAIL: the cable does not come up"; exit 1; }
}
cable_is_up() { on_host "$1" ip -o link show "$(namespace "$1")" | grep -q "state UP"; }

skip_hosts()
{
	echo "SKIP: no two hosts: $*"
	exit 77
}

end_hosts()
{
	[ -n "$hosts_id" ] || return 0
	ip netns del ${hosts_id}a 2>/dev/null
	ip netns del ${hosts_id}b 2>/dev/null
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
			SHARDRT_BOOTSTRAP=tcp:$host1:${port:-29600} SHARDRT_TOKEN=${token:-a-secret} SHARDRT_RANK=$rank \
				SHARDRT_WORLD_SIZE=$world SHARDRT_LOCAL_RANK=$local SHARDRT_LOCAL_SIZE=$n \
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
