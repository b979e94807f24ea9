#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Trainings over two hosts, which are network namespaces: the control channel over TCP, the tensors over UCX's tcp.
# The hash is that of the same training on one host, with fp32 and with fp16 and a scaler, with other numbers of ranks
# on each host, and with a cpu on one host and an OpenCL device on the other. A rank that is killed is named by the
# ranks of both hosts.
. "$srcdir/tests/harness/hosts.sh"
[ -x ./shardrt-train ] || { echo "SKIP: shardrt-train was not built"; exit 77; }
./shardrt-info | grep -q "collectives: .*ucx" || { echo "SKIP: built without UCX"; exit 77; }
make_hosts
text=$srcdir/docs/numerics.md
options="--text $text --preset nano --layers 2 --steps 4 --batch 12 --hash"
# UCX would also use the memory that the namespaces share, as they are on one machine.
SHARDRT_THREADS=1 SHARDRT_BACKEND=cpu UCX_TLS=tcp,self
export SHARDRT_THREADS SHARDRT_BACKEND UCX_TLS

hash_of() { sed -n 's/^hash: //p' "$1"; }

# same RANKS COUNTS OPTION...: the hash of RANKS ranks on one host, and of COUNTS ranks on two
same()
{
	n=$1 counts=$2
	shift 2
	# shellcheck disable=SC2086
	./shardrun -n "$n" ./shardrt-train $options "$@" >"$dir/one" 2>&1 || { cat "$dir/one"; fail "$n ranks: $*"; }
	# shellcheck disable=SC2086
	start_ranks "$counts" ./shardrt-train $options "$@"
	reap_ranks || fail "$counts ranks $*: no end"
	[ -z "$(echo "$statuses" | tr -d '0 ')" ] || fail "$counts ranks $*: statuses $statuses"
	[ -n "$(hash_of "$dir/one")" ] && [ "$(hash_of "$dir/one")" = "$(hash_of "$dir/0")" ] ||
		fail "$counts ranks $*: $(hash_of "$dir/0") is not $(hash_of "$dir/one")"
}

same 4 "2 2" --strategy zero3
same 3 "1 2" --strategy zero3 --dtype fp16 --scaler sharded
same 4 "3 1" --strategy zero2 --dtype bf16 --flat views

# Rank 1, on the other host, has another backend.
if ./shardrt-info | grep -q "opencl: [1-9]"; then
	./shardrun -n 2 ./shardrt-train $options >"$dir/one" 2>&1 || fail "2 ranks"
	start_ranks "1 1" sh -c '[ "$SHARDRT_RANK" = 0 ] || SHARDRT_BACKEND=opencl; export SHARDRT_BACKEND
		exec "$@"' sh ./shardrt-train $options
	reap_ranks || fail "mixed: no end"
	[ "$(hash_of "$dir/one")" = "$(hash_of "$dir/0")" ] ||
		fail "mixed: $(hash_of "$dir/0") is not $(hash_of "$dir/one")"
fi

# A rank of each host is killed in the middle of a training.
for victim in 1 2; do
	start_ranks "2 2" ./shardrt-train --text "$text" --preset nano --layers 2 --steps 100000 --batch 12
	await grep -q "^step" "$dir/0" || fail "no steps"
	# shellcheck disable=SC2086
	kill -KILL "$(echo $ranks | cut -d' ' -f$((victim + 1)))"
	reap_ranks || fail "kill of rank $victim: no end"
	for r in 0 1 2 3; do
		[ $r = $victim ] || grep -q "rank $victim is gone" "$dir/$r" || fail "kill of rank $victim: rank $r does not name it"
	done
done
