#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# A launcher of fault trials over two hosts: tests/engine/test_faults_hosts.sh makes them, a pair for each worker.
#
#     fault_hosts.sh NRANKS fault_job run FOLDER SEED ...    FOLDER ends with the worker's number
#
# The first ranks are on host 1; the seed decides how many.
. "$srcdir/tests/harness/hosts.sh"
rm -rf "$dir"
trap - EXIT HUP INT TERM
n=$1 dir=$4 seed=$5
shift
hosts_id=$SRT_FAULT_HOSTS${dir##*/}
ip -n "${hosts_id}a" link set "${hosts_id}a" up
mend_cable
await_cable
first=$((1 + seed % (n - 1)))
start_ranks "$first $((n - first))" "$@"
for pid in $ranks; do
	wait "$pid"
done
cat "$dir"/[0-9]*
exit 0
