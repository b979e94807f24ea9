#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Hierarchical collectives: the tests of collectives on ranks that are told that they are on several nodes, of two ranks
# and of three, with so little memory for sums that they are cut into many pieces. Within a node the transport is zero
# copy or staged, as the backend has it. Failures and differing starts are those of the whole communicator.
. "$srcdir/tests/harness/run_ranks.sh"
grep -q '^#define HAVE_UCX 1' config.h || skip "built without UCX"
text=tests/hierarchy.$SHARDRT_BACKEND.tmp
. "$srcdir/tests/harness/transport.sh"

# ok EACH RANKS PROGRAM...: EACH ranks on each node
ok()
{
	each=$1 n=$2
	shift 2
	SRT_TEST_NODES=$each SHARDRT_STAGING_BYTES=2k ./shardrun -n "$n" "$@" || fail "$* on $n ranks, $each on a node"
}

for form in $forms ${staged_forms%% *}; do
	use_form "$form"
	unset SHARDRT_COLLECTIVES # staged on a node
	ok 2 4 tests/collectives/test_collectives
	ok 2 4 tests/collectives/test_half_sums
done
use_form "${forms%% *}"
ok 3 6 tests/collectives/test_collectives
ok 2 6 tests/collectives/test_staging
if [ "$SHARDRT_BACKEND" = cpu ]; then
	ok 4 8 tests/collectives/test_collectives
	ok 3 6 tests/collectives/test_half_sums
	ok 2 6 tests/collectives/test_messages
	ok 2 4 tests/collectives/test_mismatch
	ok 2 4 tests/collectives/test_mesh
	ok 2 4 tests/collectives/test_plain
	ok 2 4 tests/collectives/test_coll_order
	for mode in abort leave timeout; do ok 2 4 tests/collectives/test_peer_failures $mode; done
	SRT_TEST_NODES=2 && export SRT_TEST_NODES
	dies 4
	dies 4 all-to-all
	unset SRT_TEST_NODES
fi
rm -f "$text"
cell 4 "$(result)"
exit $failed
