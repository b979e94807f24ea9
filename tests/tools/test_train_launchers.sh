#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# One hash for a training of 4 ranks in each precision, over launchers (shardrun, mpirun, srun, torchrun) and transports
# (shm, staged, ucx; ucx between two hosts, which are network namespaces). Launchers and transports that are not there
# are named. `make check` has each launcher, each transport and all launchers on two hosts; test_train_launchers_long.sh
# all of the table, on nano.
. "$srcdir/tests/harness/hosts.sh"
. "$srcdir/tests/harness/port.sh"
. "$srcdir/tests/harness/slurm.sh"
trap 'end_cluster; end_background; end_hosts; rm -rf "$dir"' EXIT
length=${1:-short}
for needed in ./shardrun ./shardrt-train; do
	[ -x $needed ] || { echo "SKIP: $needed was not built"; exit 77; }
done
SHARDRT_BACKEND=cpu SHARDRT_THREADS=1 SHARDRT_TIMEOUT=100 SHARDRT_STAGING_BYTES=64k
UCX_TLS=tcp,self # also on one host
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 # the test may run in a container
export SHARDRT_BACKEND SHARDRT_THREADS SHARDRT_TIMEOUT SHARDRT_STAGING_BYTES UCX_TLS dir
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM
unset SHARDRT_COLLECTIVES SHARDRT_PORT SHARDRT_ADDRESS
case $length in
long) model="--preset nano --batch 12 --steps 12" scale=4194304 ;;
*) model="--layers 2 --heads 2 --width 24 --context 20 --batch 12 --steps 5" scale=1048576 ;;
esac
ucx=$(./shardrt-info | grep "collectives: .*ucx")
is_in_build() { grep -q "define HAVE_$1 1" config.h; }

# A rank: it leaves a file for each network namespace that it finds.
cat > "$dir/rank" << 'END'
: > "$dir/net.$(readlink /proc/self/ns/net)"
exec "$@"
END

# ---- the launchers. launch_X one|two COMMAND...: 4 ranks on one host, or 2 ranks on each of two
two=
launch_shardrun()
{
	case $1 in
	one) shift && ./shardrun -n 4 "$@" ;;
	two) shift && ./shardrun -n 4 --hosts $host1,$host2 --rsh "$dir/rsh" "$@" ;;
	esac
}
launch_mpirun()
{
	case $1 in
	one) shift && timeout 300 mpirun --oversubscribe -n 4 "$@" ;;
	two) shift && timeout 300 ip netns exec "$(namespace 1)" mpirun --host $host1:2,$host2:2 \
		--mca plm_rsh_agent "$dir/rsh" -n 4 "$@" ;;
	esac
}
launch_srun()
{
	case $1 in one) nodes=1 ;; two) nodes=2 ;; esac
	shift
	timeout 300 $at1 srun --mpi=pmix -N $nodes --ntasks-per-node=$((4 / nodes)) "$@"
}
# torchrun_node NUMBER COMMAND...: on the host of this number
torchrun_node()
{
	node=$1
	shift
	timeout 300 ip netns exec "$(namespace $((node + 1)))" torchrun --no-python --nnodes 2 --node-rank "$node" \
		--nproc-per-node 2 --master-addr $host1 --master-port 29500 "$@"
}
launch_torchrun()
{
	if [ "$1" = one ]; then
		shift
		choose_ports 1
		timeout 300 torchrun --no-python --nproc-per-node 4 --master-addr 127.0.0.1 --master-port "$port" "$@"
		return
	fi
	shift
	SHARDRT_TOKEN=a-secret && export SHARDRT_TOKEN
	torchrun_node 1 "$@" > "$dir/second" 2>&1 &
	started
	second=$started
	torchrun_node 0 "$@"
	first=$?
	unset SHARDRT_TOKEN
	reap "$second" && [ $status = 0 ] || { cat "$dir/second" >&2; return 1; }
	return $first
}

# ---- what there is. Each prints what it misses.
has_launcher()
{
	case $1 in
	shardrun) return 0 ;;
	mpirun) is_in_build PMIX || { echo "not tested: mpirun: built without PMIx"; return 1; } ;;
	srun) [ -n "$cluster" ] || return 1 ;; # start_slurm has told why
	esac
	command -v "$1" > /dev/null || { echo "not tested: $1 is not installed"; return 1; }
}
has_transport()
{
	case $1 in
	ucx | hosts) [ -n "$ucx" ] || { echo "not tested: $1: there is no UCX"; return 1; } ;;
	esac
	case $1 in
	hosts)
		is_in_build SODIUM || { echo "not tested: two hosts: built without libsodium"; return 1; }
		[ -n "$two" ] || { echo "not tested: two hosts: $no_hosts"; return 1; }
		;;
	esac
}
start_slurm()
{
	is_in_build PMIX || { echo "not tested: srun: built without PMIx"; return; }
	[ -n "$two" ] || { echo "not tested: srun, without two hosts"; return; }
	can_start_cluster hosts || return
	start_cluster hosts || { tail -n 20 "$cluster"/*.out; fail "Slurm does not start"; }
	if ! $at1 srun --mpi=list 2>&1 | grep -q pmix; then
		echo "not tested: srun --mpi=pmix, for which Slurm has no plugin here"
		end_cluster
	fi
}

# ---- the table
# train LAUNCHER TRANSPORT: prints the hash
train()
{
	case $precision in
	fp32) options="--strategy zero3" ;;
	fp16) options="--strategy zero3 --dtype fp16 --scaler --init-scale $scale" ;;
	esac
	hosts=one
	case $2 in hosts) hosts=two ;; esac
	rm -f "$dir"/net.*
	# shellcheck disable=SC2086
	(
		[ $hosts = two ] || { SHARDRT_COLLECTIVES=$2 && export SHARDRT_COLLECTIVES; }
		launch_$1 $hosts sh "$dir/rank" ./shardrt-train --text "$srcdir/docs/numerics.md" $model $options \
			--eval-every 0 --hash
	) > "$dir/out" 2> "$dir/err" < /dev/null || return 1
	sed -n 's/^hash: .*xxh3-128 //p' "$dir/out"
}

is_cell()
{
	case $length.$precision.$1.$2 in
	long.* | short.fp32.*.hosts | short.fp16.shardrun.hosts | short.fp16.srun.hosts) ;;
	short.fp32.shardrun.staged | short.fp32.shardrun.ucx | short.fp32.mpirun.ucx | short.fp32.srun.shm) ;;
	short.fp16.mpirun.staged | short.fp16.shardrun.ucx | short.fp32.torchrun.shm) ;;
	*) return 1 ;;
	esac
}

ncells=0
for precision in fp32 fp16; do
	reference=$(train shardrun shm) || {
		grep -q "xxhash" "$dir/err" && { echo "SKIP: built without libxxhash"; exit 77; }
		fail "shardrun, shm, $precision"
	}
	[ -n "$reference" ] || fail "no hash"
	echo "$precision: $reference"
	if [ $precision = fp32 ]; then
		can_make_hosts && two=yes
		start_slurm
	fi
	for launcher in shardrun mpirun srun torchrun; do
		has_launcher $launcher || continue
		for transport in shm staged ucx hosts; do
			is_cell $launcher $transport && has_transport $transport || continue
			cell="$launcher, $transport, $precision"
			hash=$(train $launcher $transport) || fail "$cell"
			[ "$hash" = "$reference" ] || fail "$cell: '$hash', not '$reference'"
			[ "$(ls "$dir"/net.* | wc -l)" = "$([ $transport = hosts ] && echo 2 || echo 1)" ] ||
				fail "$cell: $(ls "$dir"/net.* | wc -l) hosts"
			echo "the same: $cell"
			ncells=$((ncells + 1))
		done
	done
done
echo "$ncells trainings"
