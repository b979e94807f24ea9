#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Lanes of staged collectives, and the host functions of a start on either transport; jobs in which the
# devices of some ranks have peer memory and those of others do not.
. "$srcdir/tests/harness/run_ranks.sh"
for form in $staged_forms ${forms%% *}; do
	use_form $form
	run_ranks "1 2 3 5" tests/collectives/test_staging
done
use_form ${forms%% *}
without_on_one='case $SHARDRT_RANK in 1) SHARDRT_PEER_MEMORY=no && export SHARDRT_PEER_MEMORY ;; esac; exec "$@"'
run_ranks "2 3" sh -c "$without_on_one" sh tests/collectives/test_staging
run_ranks "3" sh -c "$without_on_one" sh tests/collectives/test_collectives
