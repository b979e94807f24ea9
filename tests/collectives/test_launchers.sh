#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The same programs under every launcher: a loop in sh that sets variables, mpirun, srun, torchrun, and a transport of
# the program (pipes, MPI). Each rank checks its numbers in two contexts, one after the other. A training has the same
# hash under all. Launchers that are not installed are named and left out. srun needs root: the test starts a cluster
# of one node for it, and ends it.
. "$srcdir/tests/harness/run_ranks.sh"
. "$srcdir/tests/harness/wait.sh"
. "$srcdir/tests/harness/port.sh"
. "$srcdir/tests/harness/slurm.sh"
[ -x ./shardrun ] || skip "shardrun was not built"
dir=$(mktemp -d) || exit 1
trap 'end_cluster; end_background; rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
SHARDRT_BACKEND=cpu SHARDRT_THREADS=1 SHARDRT_TIMEOUT=60
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 # the test may run in a container
export SHARDRT_BACKEND SHARDRT_THREADS SHARDRT_TIMEOUT OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM
program=tests/collectives/test_launchers

fail()
{
	echo "FAIL: $*"
	tail -n 40 "$dir"/out "$dir"/err 2> /dev/null
	exit 1
}

is_in_build() { grep -q "define HAVE_$1 1" config.h; }

# has COMMAND: it is installed; else the output names what is not tested
has()
{
	command -v "$1" > /dev/null || { echo "not tested: $1 is not installed"; return 1; }
}

# all_ranks N COMMAND...: it runs N ranks, which pass, and each is there once.
all_ranks()
{
	n=$1
	shift
	now
	begin=$now
	"$@" > "$dir/out" 2> "$dir/err" || fail "$* ($?)"
	[ "$(sed -n 's/^rank //p' "$dir/out" | sort -n | tr '\n' ' ')" = "$(seq -s ' ' 0 $((n - 1))) " ] ||
		fail "not each of $n ranks is there once: $*"
	now
	echo "$n ranks in $((now - begin)) s: $*"
}

# refused WORDS COMMAND...: it fails, with these words.
refused()
{
	words=$1
	shift
	! "$@" > "$dir/out" 2> "$dir/err" || fail "not refused: $*"
	grep -q -e "$words" "$dir/out" "$dir/err" || fail "no \"$words\": $*"
}

# ---- variables, set by a loop
$program || exit 1

# loop N NAME=VALUE...: ranks whose environment has these variables; @ is replaced by the rank.
loop()
{
	of=$1
	shift
	pids=
	for rank in $(seq 0 $((of - 1))); do
		# shellcheck disable=SC2046,SC2068
		env $(echo "$*" | sed "s/@/$rank/g") $program job "$of" &
		started
		pids="$pids $started"
	done
	ended=0
	for pid in $pids; do
		reap "$pid" && [ "$status" = 0 ] || ended=1
	done
	return $ended
}
all_ranks 4 loop 4 RANK=@ LOCAL_RANK=@ WORLD_SIZE=4 LOCAL_WORLD_SIZE=4 MASTER_PORT=$$
all_ranks 1 loop 1 RANK=0 WORLD_SIZE=1
all_ranks 1 $program job 1
if is_in_build SODIUM; then
	choose_ports 2
	all_ranks 3 loop 3 RANK=@ WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 SHARDRT_PORT=$port
	all_ranks 3 loop 3 SHARDRT_BOOTSTRAP=tcp:127.0.0.1:$((port + 1)) SHARDRT_RANK=@ SHARDRT_WORLD_SIZE=3
	refused "SHARDRT_TOKEN is not set" env RANK=1 WORLD_SIZE=2 MASTER_ADDR=192.0.2.1 $program job 2
else
	echo "not tested: ranks that meet by TCP, which needs libsodium"
fi
$program pipes 4 || fail "pipes"
$program pipes 1 || fail "pipes"

if is_in_build PMIX; then
	refused "rank 0: PMIx_Init() of PMIx failed" env PMIX_RANK=0 PMIX_NAMESPACE=none $program job 1
	all_ranks 1 env SHARDRT_BOOTSTRAP=none PMIX_RANK=0 PMIX_NAMESPACE=none $program job 1
else
	refused "was built without PMIx" env PMIX_RANK=0 $program job 1
fi

# ---- training
hash_of()
{
	"$@" ./shardrt-train --text "$srcdir/README.md" --layers 2 --heads 2 --width 16 --context 16 --batch 6 --steps 3 \
		--eval-every 0 --hash > "$dir/out" 2> "$dir/err" || fail "$* shardrt-train"
	sed -n 's/^hash: .*xxh3-128 //p' "$dir/out"
}
same_hash()
{
	[ "$(hash_of "$@")" = "$hash" ] || fail "another hash than $hash: $*"
	echo "hash $hash: $*"
}
hash=$(hash_of ./shardrun -n 2)
[ -n "$hash" ] || fail "no hash"

# ---- mpirun
# compile_mpi: test_launchers_mpi.c, with mpicc
compile_mpi()
{
	has mpicc || return 1
	[ -z "$SRT_SANITIZE" ] || { echo "not tested: MPI with sanitizers"; return 1; }
	./libtool --silent --tag=CC --mode=link mpicc -std=c11 -I"$srcdir/include" -I"$srcdir" -o "$dir/mpi" \
		"$srcdir/tests/collectives/test_launchers_mpi.c" libshardrt.la > "$dir/out" 2>&1 || fail "mpicc"
}
run_mpi() { mpirun --oversubscribe "$@"; }
if is_in_build PMIX && has mpirun; then
	all_ranks 4 run_mpi -n 4 $program job 4
	all_ranks 1 run_mpi -n 1 $program job 1
	same_hash run_mpi -n 2
	# Rank 1 does not join, and does not end: mpirun would end the job at once.
	refused "did not join\|not all ranks" env SHARDRT_TIMEOUT=1 mpirun --oversubscribe -n 2 \
		sh -c "[ \$PMIX_RANK = 0 ] || exec sleep 600; exec $program job 2"
	if compile_mpi; then
		for first in mpi shardrt broadcast; do
			run_mpi -n 3 "$dir/mpi" $first 3 > "$dir/out" 2> "$dir/err" || fail "MPI, $first"
			grep -qx passed "$dir/out" || fail "MPI, $first"
		done
		"$dir/mpi" mpi 1 > "$dir/out" 2> "$dir/err" || fail "MPI without mpirun"
		echo "MPI passed"
	fi
fi

# ---- srun
if is_in_build PMIX && can_start_cluster; then
	start_cluster || { cat "$cluster"/*.out; fail "Slurm does not start"; }
	if srun --mpi=list 2>&1 | grep -q pmix; then
		all_ranks 4 srun -n 4 --mpi=pmix $program job 4
		same_hash srun -n 2 --mpi=pmix
	else
		echo "not tested: srun --mpi=pmix, for which Slurm has no plugin here"
	fi
	refused "start the ranks with srun --mpi=pmix" srun -n 2 $program job 2
	refused "start the ranks with srun --mpi=pmix" srun -n 2 --mpi=pmi2 $program job 2
	SHARDRT_BOOTSTRAP=none srun -n 2 $program job 1 > "$dir/out" 2> "$dir/err" || fail "SHARDRT_BOOTSTRAP=none"
	end_cluster
fi

# ---- torchrun; it takes seconds to start
if has torchrun; then
	cat > "$dir/both" << END
$program job 2 && exec "\$@"
END
	choose_ports 1
	same_hash torchrun --no-python --nproc-per-node 2 --master-addr 127.0.0.1 --master-port "$port" sh "$dir/both"
	[ "$(sed -n 's/^rank //p' "$dir/out" | sort -n | tr '\n' ' ')" = "0 1 " ] || fail "torchrun"
fi
exit 0
