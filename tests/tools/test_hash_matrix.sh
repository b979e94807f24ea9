#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# One hash for a training run over strategies x threads x streams x instruction sets, at each number of
# ranks and in each precision: fp32, bf16 and fp16 with fp32 parameters, the last with a scale of the loss
# that is too large for the first steps, and "infinity": fp16 with an infinity on the last rank
# (tests/models/test_gpt_infinity.c). Flat parameters, offload and replicas of shards on a mesh have the same
# hash, tensor parallelism has another one. Numbers of ranks, precisions, seeds and kinds of accumulation have
# different ones. Any other backend has the cpu's hash, with every strategy and form, and so have jobs of both,
# the cpu first or last. SHARDRT_CHECK=1 and SHARDRT_AUDIT=1 change none. The hashes are in hash_matrix.def, so every
# machine must have them.
#
#     test_hash_matrix.sh            a small model, few steps: the rows of hash_pairs.def; on meshes all in make check-long
#     test_hash_matrix.sh long       nano with clipping, all of it (make check-long)
#     test_hash_matrix.sh long N     on N ranks alone
#     test_hash_matrix.sh long N P   on N ranks in precision P alone (tools/gpu-check/gpu-check)
. "$srcdir/tests/harness/run_ranks.sh"
[ -x ./shardrun ] || skip "shardrun was not built"
length=${1:-short}
case $length in
long)
	model="--preset nano --batch 30 --clip 0.5" size=nano
	worlds="1 2 3 5" steps=50 steps16=12 scale=4194304
	[ "$SHARDRT_BACKEND" != cpu ] || worlds="2 3 5"
	;;
*)
	model="--layers 2 --heads 2 --width 24 --context 20 --batch 30 --clip 0.5"
	size=small steps=4 steps16=6 scale=1048576
	;;
esac
worlds=${2:-$worlds}
precisions=${3:-fp32 bf16 fp16 infinity}
strategies="ddp zero1 zero2 zero3 kept" # kept: zero3 whose units keep their unsharded parameters
text=tests/hash_matrix.$length.$SHARDRT_BACKEND.${2:-all}.${3:-all}.tmp
trap 'rm -f "$text" "$text.rows"' EXIT
i=0
while [ $i -lt 400 ]; do
	echo "line $i of the text has the number $((i * 7919 % 10007)), and line $((i * i)) is not in it"
	i=$((i + 1))
done > "$text"

# hash_of RANKS STRATEGY OPTIONS...: of a job in $precision on $SHARDRT_BACKEND, or of one whose ranks run
# through $by_rank; with the number of skipped steps if the trainer scales the loss. Of a job that fails, how.
by_rank=
hash_of()
{
	n=$1
	case $2 in kept) strategy_options="--strategy zero3 --reshard never" ;; *) strategy_options="--strategy $2" ;; esac
	case $precision in
	fp32) type_options="--steps $steps" ;;
	bf16) type_options="--steps $steps16 --dtype bf16" ;;
	fp16) type_options="--steps $steps16 --dtype fp16 --scaler --init-scale $scale" ;;
	esac
	program="./shardrt-train --text $text $model $type_options $strategy_options --eval-every 0 --hash"
	[ $precision != infinity ] || program="tests/models/test_gpt_infinity $size $2"
	shift 2
	began=$(date +%s)
	./shardrun -n "$n" $by_rank $program "$@" 2> "$text.err" > "$text.out"
	status=$?
	sed -n 's/^hash: numerics [0-9]* exact, xxh3-128 //p' "$text.out"
	sed -n 's/^step .* \([0-9]* skipped\) .*/\1/p' "$text.out" | tail -n 1
	[ $status = 0 ] || echo "exit status $status after $(($(date +%s) - began)) s"
	grep -q 'xxhash' "$text.err" && touch "$text.nohash"
	cat "$text.err" >&2
	rm -f "$text.err" "$text.out"
}

is_hash()
{
	case $1 in *"exit status"* | "") return 1 ;; *) return 0 ;; esac
}

failures=0 runs=0
# same WORLD LABEL HASH...
same()
{
	label=$2 on=$1
	shift 2
	runs=$((runs + 1))
	[ "$*" = "$reference" ] && return
	echo "FAIL: $precision, $label on $on ranks: '$*', not '$reference'"
	failures=$((failures + 1))
}

# what the processor and the library have: all of them must work
usable="baseline"
for isa in avx2 avx512 neon; do
	case $isa in
	avx512) flag=avx512bw ;;
	neon) flag=asimd ;;
	*) flag=$isa ;;
	esac
	grep -qw $flag /proc/cpuinfo 2> /dev/null || continue
	grep -q "^#define HAVE_$(echo $isa | tr a-z A-Z) 1" config.h || continue
	usable="$usable $isa"
done
echo "instruction sets: $usable"
precision=fp32
hash_of 1 ddp --steps 0 > /dev/null
[ ! -e "$text.nohash" ] || { rm -f "$text.nohash"; skip "built without libxxhash"; }

# staged_matrix WORLD: collectives through host memory, in pieces
staged_matrix()
{
	n=$1
	for strategy in ddp zero3; do
		same $n "$strategy, staged" $(export SHARDRT_PEER_MEMORY=no SHARDRT_STAGING_BYTES=16k
			hash_of $n $strategy)
	done
}

# checked_matrix WORLD: SHARDRT_CHECK=1 and SHARDRT_AUDIT=1 do not change the results of a right program
checked_matrix()
{
	n=$1
	for strategy in $strategies; do
		checks=1
		[ $precision != infinity ] || checks=0 # its gradients overflow by design
		same $n "$strategy, checked" $(export SHARDRT_CHECK=$checks SHARDRT_AUDIT=1
			hash_of $n $strategy)
	done
}

# offload_matrix WORLD: what is in host memory does not change the results
offload_matrix()
{
	n=$1
	[ $precision != infinity ] || return
	for strategy in $strategies; do
		for what in state all; do
			same $n "$strategy, $what offloaded" $(hash_of $n $strategy --offload $what)
		done
	done
}

# flat_matrix WORLD: flat parameters do not change the results
flat_matrix()
{
	n=$1
	[ $precision != infinity ] || return
	for strategy in $strategies; do
		for flat in views padded; do
			same $n "$strategy, flat, $flat" $(hash_of $n $strategy --flat $flat)
		done
	done
}

# other_matrix WORLD: other sums in another order, which the hash must see, with checks as without
other_matrix()
{
	n=$1
	for other in "--seed 2" "--accumulate 2 --accumulate-mode last" "--clip 0.4"; do
		case $n.$other in *.--acc*) [ $n != 2 ] || continue ;; esac
		h=$(hash_of $n ddp $other)
		checked=$(export SHARDRT_CHECK=1
			hash_of $n zero3 $other)
		[ "$checked" = "$h" ] ||
			{ echo "FAIL: $other on $n ranks, checked: '$checked', not '$h'"; failures=$((failures + 1)); }
		is_hash "$h" && [ "$h" != "$reference" ] ||
			{ echo "FAIL: $other on $n ranks: '$h'"; failures=$((failures + 1)); }
	done
}

# is_cell STRATEGY STREAMS ISA THREADS: whether it is in the matrix: all of strategies, instruction sets and threads, but for
# most strategies in one kind of streams, and in fp32 not those of the baseline, which is slow.
is_cell()
{
	case $precision.$1.$2.$3.$4 in
	fp32.ddp.* | fp32.zero3.* | fp32.*.inline.avx*.[13] | fp32.*.threads.*.2) return 0 ;;
	fp32.*) ;;
	*.inline.*.[13] | *.threads.*.2) return 0 ;;
	esac
	return 1
}

# cpu_matrix WORLD
cpu_matrix()
{
	n=$1
	for strategy in $strategies; do
		for streams in inline threads; do
			for isa in $usable; do
				for threads in 1 2 3; do
					is_cell $strategy $streams $isa $threads || continue
					same $n "$strategy, $streams, $isa, $threads threads" \
						$(export SHARDRT_CPU_ISA=$isa SHARDRT_CPU_STREAMS=$streams
						SHARDRT_THREADS=$threads && export SHARDRT_THREADS
						hash_of $n $strategy)
				done
			done
		done
	done
	staged_matrix $n
	checked_matrix $n
	offload_matrix $n
	flat_matrix $n
	[ $precision != fp32 ] || other_matrix $n
}

# device_matrix WORLD: on another backend
device_matrix()
{
	n=$1
	for form in $forms; do
		use_form $form
		for strategy in $strategies; do
			same $n "$strategy, $SHARDRT_BACKEND, $form" $(hash_of $n $strategy)
		done
	done
	# The rest in the first form, which is faster, and in check-long in the last one.
	[ -n "$SRT_TEST_LONG" ] || use_form ${forms%% *}
	staged_matrix $n
	checked_matrix $n
	offload_matrix $n
	flat_matrix $n
}

# mixed_matrix WORLD: ranks of the cpu and of another backend in one job
mixed_matrix()
{
	n=$1
	for mix in "cpu+$SHARDRT_BACKEND" "$SHARDRT_BACKEND+cpu"; do
		before=$failures
		by_rank="sh $srcdir/tests/harness/by_rank.sh $mix"
		for strategy in $strategies; do
			same $n "$strategy, $mix" $(hash_of $n $strategy)
		done
		staged_matrix $n
		cell_of $mix $n "$([ $failures = $before ] && echo pass || echo fail)"
	done
	by_rank=
}

# mesh_cells MESH STRATEGY...: of these strategies with what is offloaded
mesh_cells()
{
	mesh=$1
	shift
	for strategy; do
		for what in none state all; do
			same $n "$strategy, $mesh, $what offloaded" $(hash_of $n $strategy --batch 24 $mesh --offload $what)
		done
	done
}

# tensor_matrix MESH: tensor parallelism has one hash at each number of ranks
tensor_matrix()
{
	plain=$reference
	reference=$(sed -n "s/^tp $n $precision //p" "$srcdir/tests/tools/hash_matrix.def")
	mesh_cells "--mesh $1" ddp zero1 zero2 zero3
	[ $n.$precision != 4.fp32 ] || same $n "zero3, $1, flat" $(hash_of $n zero3 --batch 24 --mesh $1 --flat views)
	if [ $SHARDRT_BACKEND != cpu ]; then
		for mix in "cpu+$SHARDRT_BACKEND" "$SHARDRT_BACKEND+cpu"; do
			by_rank="sh $srcdir/tests/harness/by_rank.sh $mix"
			same $n "zero3, $1, $mix" $(hash_of $n zero3 --batch 24 --mesh $1)
		done
		by_rank=
	fi
	reference=$plain
}

# turned_meshes: on four ranks, of one dimension, and of groups that are gathered but are no mesh
turned_meshes()
{
	same $n "ddp on a mesh" $(hash_of $n ddp --batch 24 --mesh dp=4)
	same $n "hybrid, turned" $(hash_of $n hybrid --batch 24 --mesh shard=4,replicate=1)
	same $n "zero3, --reshard 2, flat" $(hash_of $n zero3 --batch 24 --reshard 2 --flat padded)
}

# mesh_matrix WORLD: offload, and on a mesh replicas of shards, have the hash of the strategies on this number of
# ranks; of another batch than the other matrices
mesh_matrix()
{
	n=$1 failures_before=$failures runs=0
	reference=$(sed -n "s/^mesh $n $precision //p" "$srcdir/tests/tools/hash_matrix.def")
	mesh_cells "" ddp zero1 zero2 zero3
	case $n in
	2) tensor_matrix tp=2 ;;
	4)
		mesh_cells "--mesh replicate=2,shard=2" zero1 zero2 zero3 hybrid
		tensor_matrix dp=2,tp=2
		;;
	6)
		mesh_cells "--mesh replicate=3,shard=2" hybrid
		tensor_matrix dp=3,tp=2
		;;
	esac
	if [ $n.$precision = 4.fp32 ]; then
		turned_meshes
		same $n "hybrid, flat" $(hash_of $n hybrid --batch 24 --mesh replicate=2,shard=2 --flat views)
		same $n "zero3, flat, all offloaded" $(hash_of $n zero3 --batch 24 --flat padded --offload all)
		same $n "hybrid, staged" $(export SHARDRT_PEER_MEMORY=no SHARDRT_STAGING_BYTES=16k
			hash_of $n hybrid --batch 24 --mesh replicate=2,shard=2)
	fi
	cell $n "$([ $failures = $failures_before ] && echo pass || echo fail)"
	[ $failures != $failures_before ] || echo "$n ranks on a mesh, $precision: $reference, $runs runs"
}

# precision_matrix WORLD: in $precision
precision_matrix()
{
	n=$1
	failures_before=$failures runs=0
	reference=$(sed -n "s/^$length $n $precision //p" "$srcdir/tests/tools/hash_matrix.def")
	if [ "$SHARDRT_BACKEND" = cpu ]; then
		cpu_matrix $n
	else
		device_matrix $n
	fi
	cell $n "$([ $failures = $failures_before ] && echo pass || echo fail)"
	case $SHARDRT_BACKEND.$n in
	cpu.* | *.1) ;;
	*) mixed_matrix $n ;;
	esac
	[ $failures != $failures_before ] || echo "$n ranks, $precision: $reference, $runs runs"
}

[ -z "$(sed '/^#/d; s/^[^ ]* [^ ]* [^ ]* //' "$srcdir/tests/tools/hash_matrix.def" | sort | uniq -d)" ] ||
	{ echo "FAIL: two numbers of ranks, or precisions, have one hash"; exit 1; }
if [ $length = long ]; then
	for n in $worlds; do
		for precision in $precisions; do precision_matrix $n; done
	done
	[ $failures = 0 ]
	exit
fi

# ---- the pairs of make check

# mix WHICH: sets by_rank, for these ranks on the cpu and the others on this backend
mix()
{
	case $1 in
	first) mix=cpu+$SHARDRT_BACKEND ;;
	last) mix=$SHARDRT_BACKEND+cpu ;;
	*) mix= ;;
	esac
	by_rank=${mix:+"sh $srcdir/tests/harness/by_rank.sh $mix"}
}

# options_of OFFLOAD FLAT COLLECTIVES: prints options of the trainer; exports what stages collectives
options_of()
{
	options=
	[ $1 = none ] || options="--offload $1"
	[ $2 = no ] || options="$options --flat $2"
	[ $3 = peer ] || { SHARDRT_PEER_MEMORY=no SHARDRT_STAGING_BYTES=16k && export SHARDRT_PEER_MEMORY SHARDRT_STAGING_BYTES; }
}

# pair COLUMN...
pair()
{
	n=$1 precision=$2 before=$failures
	reference=$(sed -n "s/^short $n $precision //p" "$srcdir/tests/tools/hash_matrix.def")
	[ "$SHARDRT_BACKEND" = cpu ] || mix $8
	same $n "$*" $(
		options_of $4 $5 $6
		if [ $7 = checked ]; then
			SHARDRT_CHECK=1 SHARDRT_AUDIT=1
			[ $precision != infinity ] || SHARDRT_CHECK=0 # its gradients overflow by design
			export SHARDRT_CHECK SHARDRT_AUDIT
		fi
		if [ "$SHARDRT_BACKEND" = cpu ]; then
			case " $usable " in *" $9 "*) isa=$9 ;; *) isa=${usable##* } ;; esac
			SHARDRT_CPU_STREAMS=$8 SHARDRT_CPU_ISA=$isa SHARDRT_THREADS=${10}
			export SHARDRT_CPU_STREAMS SHARDRT_CPU_ISA SHARDRT_THREADS
		fi
		hash_of $n $3 $options)
	row_done
}

# mesh_pair COLUMN...
mesh_pair()
{
	n=$2 precision=$3 before=$failures
	case $1.$n in
	plain.*) mesh= ;;
	tp.2) mesh="--mesh tp=2" ;;
	tp.*) mesh="--mesh dp=$((n / 2)),tp=2" ;;
	*) mesh="--mesh replicate=$((n / 2)),shard=2" ;;
	esac
	case $1 in tp) form=tp ;; *) form=mesh ;; esac
	reference=$(sed -n "s/^$form $n $precision //p" "$srcdir/tests/tools/hash_matrix.def")
	mix "$8"
	same $n "$*" $(
		options_of $5 $6 $7
		hash_of $n $4 --batch 24 $mesh $options)
	row_done
}

row_done()
{
	cell_of ${mix:-${SRT_BACKEND_NAME:-$SHARDRT_BACKEND}} $n "$([ $failures = $before ] && echo pass || echo fail)"
	by_rank= mix=
}

# rows_of COMMAND TABLE: the command with each row of the table
rows_of()
{
	sed -n "s/^$2 //p" "$srcdir/tests/tools/hash_pairs.def" > "$text.rows"
	[ -s "$text.rows" ] || { echo "FAIL: hash_pairs.def has no rows $2"; failures=$((failures + 1)); }
	while read -r row <&3; do
		$1 $row
	done 3< "$text.rows"
	rm -f "$text.rows"
}

use_form ${forms%% *}
case $SHARDRT_BACKEND in cpu) table=cpu ;; *) table=device ;; esac
rows_of pair $table
if [ -n "$SRT_TEST_LONG" ]; then
	case $SHARDRT_BACKEND in cpu) worlds="2 3 4 6" ;; *) worlds="2 4" ;; esac
	for n in $worlds; do
		for precision in fp32 bf16 fp16; do mesh_matrix $n; done
	done
fi
rows_of mesh_pair $table-mesh
if [ "$SHARDRT_BACKEND" = cpu ]; then
	precision=fp32
	reference=$(sed -n "s/^short 3 fp32 //p" "$srcdir/tests/tools/hash_matrix.def")
	other_matrix 3
	n=4 reference=$(sed -n "s/^mesh 4 fp32 //p" "$srcdir/tests/tools/hash_matrix.def")
	turned_meshes
fi
# Lanes as work-items, which PoCL compiles without optimization: a short training of a few rows, in one precision. The
# kernels' tests have all of them.
case "$forms" in
*items*)
	precision=bf16
	reference=$(SHARDRT_BACKEND=cpu hash_of 2 ddp --batch 4 --steps 2)
	is_hash "$reference" || { echo "FAIL: on the cpu: '$reference'"; failures=$((failures + 1)); }
	use_form items
	same 2 "zero3, items" $(hash_of 2 zero3 --batch 4 --steps 2)
	;;
esac
echo "$runs runs, $failures failed"
[ $failures = 0 ]
