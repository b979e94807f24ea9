#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The control channel between two nodes, which are network namespaces: every rank reaches every other one; the
# end of any rank, the gateways of both nodes included, a stopped rank and a cut cable are told to all others
# with the name of the rank; a process without the job's token is refused.
. "$srcdir/tests/harness/hosts.sh"
grep -q '^#define HAVE_SODIUM 1' config.h || { echo "SKIP: built without libsodium"; exit 77; }
make_hosts
program=tests/collectives/test_control

# told TEXT RANK...: these ranks print the reason
told()
{
	text=$1
	shift
	for r in "$@"; do
		grep -q "after .*$text" "$dir/$r" || return 1
	done
}

for counts in "1 1" "2 2" "1 3" "4 1"; do
	start_ranks "$counts" $program exchange
	reap_ranks || fail "$counts: no end"
	[ -z "$(echo "$statuses" | tr -d '0 ')" ] || fail "$counts: statuses $statuses"
	for n in $counts; do
		grep -q "local rank $((n - 1)) of $n" "$dir"/[0-9]* || fail "$counts: no local rank $((n - 1)) of $n"
	done
done

for how in kill exit leave; do
	for victim in 0 1 2 3; do
		start_ranks "2 2" $program end $victim $how
		reap_ranks || fail "$how of rank $victim: no end"
		text="rank $victim is gone"
		[ $how != leave ] || text="left in order"
		others=$(echo 0 1 2 3 | tr -d $victim)
		told "$text" $others || fail "$how of rank $victim: not all ranks were told"
	done
done

# Ranks that carry messages between the nodes leave first: rank 0, and rank 2 or 3. One that leaves last ends at once.
for second in 2 3; do
	start_ranks "2 2" $program outlive 0 $second
	reap_ranks || fail "outlive 0 $second: no end"
	[ -z "$(echo "$statuses" | tr -d '0 ')" ] || fail "outlive 0 $second: statuses $statuses"
done

# A rank that has left and still carries messages is killed.
#
# Reliability: the end of a process that has left in order and still carries others' messages | the ranks of the other
# node counted as left, and waits for them ended at the deadline | they are lost, with that reason, at once
waiting() { [ "$(cat "$dir"/[0-3] | grep -c waits)" = 3 ]; }
for node in 0 1; do
	start_ranks "2 2" $program abandon $node
	await waiting || fail "abandon $node: not all ranks wait"
	carrier=$(sed -n 's/^rank \(.\) of 4: leaves$/\1/p' "$dir"/[0-3])
	kill -KILL "$(echo $ranks | cut -d ' ' -f $((carrier + 1)))"
	reap_ranks || fail "abandon $node: no end"
	told "cannot be reached: rank $carrier, which carried its messages, is gone" $(echo 0 1 2 3 | tr -d $carrier) ||
		fail "abandon $node: not all ranks were told"
done

# A rank that does not answer: its node is lost to the others after SHARDRT_HEARTBEAT. It learns why when it goes on.
#
# Reliability: a node that was stopped for longer than SHARDRT_HEARTBEAT, and goes on | it says that rank 0 was killed or
# crashed | it says how long it did not run
SHARDRT_HEARTBEAT=2
export SHARDRT_HEARTBEAT
start_ranks "2 1" $program end 2 stop
await told "rank 2 has not answered" 0 1 || fail "stop: not all ranks were told"
kill -CONT "${ranks##* }"
reap_ranks || fail "stop: no end"
told "rank 2 did not run for" 2 || fail "stop: the stopped rank was not told"

start_ranks "2 2" $program end 9 cut
all_wait() { [ "$(cat "$dir"/[0-3] | grep -c waits)" = 4 ]; }
await all_wait || fail "cut: not all ranks wait"
cut_cable
await told "has not answered" 0 1 2 3 || fail "cut: not all ranks were told"
mend_cable
reap_ranks || fail "cut: no end"
unset SHARDRT_HEARTBEAT

# The name of the first host leads to a loopback address there, and to another one on the second host.
#
# Reliability: a host whose /etc/hosts leads its own name to 127.0.1.1, as Debian's does | under `torchrun` rank 0
# listened where no other host can connect | it listens on all addresses, and needs a token
echo "127.0.1.1 srt-first" >"$dir/hosts.first"
echo "$host1 srt-first" >"$dir/hosts.other"
address=srt-first
start_ranks "2 2" sh -c '[ $SHARDRT_RANK -lt 2 ] && hosts=hosts.first || hosts=hosts.other
	mount --bind "$1/$hosts" /etc/hosts && exec $2 exchange' sh "$dir" $program
reap_ranks || fail "own name: no end"
[ -z "$(echo "$statuses" | tr -d '0 ')" ] || fail "own name: statuses $statuses"
address=
SHARDRT_BOOTSTRAP=tcp:srt-first:29600 SHARDRT_WORLD_SIZE=2 SHARDRT_RANK=0 ip netns exec "$(namespace 1)" sh -c '
	mount --bind "$1" /etc/hosts && exec $2 exchange' sh "$dir/hosts.first" $program >"$dir/0" 2>&1 &&
	fail "own name: no token is needed"
grep -q "SHARDRT_TOKEN is not set" "$dir/0" || fail "own name: another error"

# A process without the job's token is told so; rank 0 goes on waiting for rank 1.
SHARDRT_BOOTSTRAP=tcp:$host1:29600 SHARDRT_WORLD_SIZE=2
export SHARDRT_BOOTSTRAP SHARDRT_WORLD_SIZE
SHARDRT_TIMEOUT=10 SHARDRT_RANK=0 SHARDRT_TOKEN=right ip netns exec "$(namespace 1)" $program exchange >"$dir/0" 2>&1 &
started
ranks=$started
SHARDRT_TIMEOUT=100 SHARDRT_RANK=1 SHARDRT_TOKEN=wrong ip netns exec "$(namespace 2)" $program exchange >"$dir/1" 2>&1 &
started
ranks="$ranks $started"
reap_ranks || fail "token: no end"
[ "$statuses" = " 3 3" ] || fail "token: statuses $statuses"
grep -q "the other end does not know the job's token" "$dir/1" || fail "token: the stranger is not told"
grep -q "rank 1 did not join" "$dir/0" || fail "token: rank 0 did not wait for rank 1"
exit 0
