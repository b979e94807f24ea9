# SPDX-License-Identifier: BSD-3-Clause
#
# To be sourced after tests/harness/run_ranks.sh by a script that tests one way between ranks: training by it has the hash of
# the cpu's, the log says which way was taken, and a rank that dies is an error on the others.
#
#     text=tests/NAME.tmp                     for the file to train on
#     model="--layers 1 ..." ranks=3          of the training
#     SHARDRT_BACKEND=cpu trained . env       the first one makes the reference; reference= begins anew
#     trained 'are staged' env NAME=VALUE     the same by the command `env NAME=VALUE`, with words in the log
#     dies 3 [CASE]                           tests/collectives/test_peer_failures, whose last rank is killed
#     cell 3 $(result) and exit $failed
failed=0
fail()
{
	echo "FAIL: $*"
	failed=1
}

result() { [ $failed = 0 ] && echo pass || echo fail; }

# sh -c "$on_rank" sh R NAME=VALUE COMMAND...: a variable for one rank alone
on_rank='r=$1 v=$2; shift 2; [ "$SHARDRT_RANK" != "$r" ] || export "$v"; exec "$@"'

trap 'rm -f "$text" "$text.err"' EXIT
cat "$srcdir"/include/shardrt/*.h > "$text"
reference=
trained()
{
	words=$1
	shift
	hash=$(SHARDRT_LOG=debug ./shardrun -n "$ranks" "$@" ./shardrt-train --text "$text" $model --eval-every 0 --hash \
		2> "$text.err" | sed -n 's/^hash: //p')
	grep -q "xxhash" "$text.err" && return # built without it
	reference=${reference:-$hash}
	[ -n "$hash" ] && [ "$hash" = "$reference" ] || fail "$*, $ranks ranks: '$hash', not '$reference'"
	grep -q "$words" "$text.err" || { fail "no \"$words\" with $*, $ranks ranks:"; cat "$text.err"; }
}

dies()
{
	out=$(n=$1 && shift && ./shardrun -k -n "$n" tests/collectives/test_peer_failures die "$@" 2>&1)
	[ $? = 137 ] || fail "die on $* ranks: $out"
	case $out in *FAIL* | *expected* | *"fake NCCL"* | *"fake_cuda:"*) fail "die on $* ranks: $out" ;; esac
}
