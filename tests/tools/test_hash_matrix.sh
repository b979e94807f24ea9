#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# One hash for a training run over strategies x threads x streams x instruction sets, at each number of
# ranks; different ones at different numbers of ranks, seeds and kinds of accumulation. Any other backend
# has the cpu's hash, with every strategy and form, and so have jobs of both, the cpu first or last.
#
#     test_hash_matrix.sh          a small model, few steps, a part of the matrix
#     test_hash_matrix.sh long     nano, 50 steps with clipping, all of it (make check-long)
#     test_hash_matrix.sh long N   on N ranks alone (tools/gpu-check/gpu-check)
. "$srcdir/tests/harness/run_ranks.sh"
[ -x ./shardrun ] || skip "shardrun was not built"
length=${1:-short}
case $length in
long)
	model="--preset nano --steps 50 --batch 30 --clip 0.5"
	worlds="1 2 3"
	[ "$SHARDRT_BACKEND" != cpu ] || worlds="2 3 5"
	;;
*)
	model="--layers 2 --heads 2 --width 24 --context 20 --batch 30 --steps 4 --clip 0.5"
	worlds="2 3"
	;;
esac
worlds=${2:-$worlds}
text=tests/hash_matrix.$length.$SHARDRT_BACKEND.${2:-all}.tmp
trap 'rm -f "$text"' EXIT
cat "$srcdir"/include/shardrt/*.h > "$text"

# hash_of RANKS OPTIONS...: of a job on $SHARDRT_BACKEND, or of one whose ranks run through $by_rank; of one
# that fails, how
by_rank=
hash_of()
{
	n=$1
	shift
	began=$(date +%s)
	./shardrun -n "$n" $by_rank ./shardrt-train --text "$text" $model --eval-every 0 --hash "$@" \
		2> "$text.err" > "$text.out"
	status=$?
	sed -n 's/^hash: //p' "$text.out"
	[ $status = 0 ] || echo "exit status $status after $(($(date +%s) - began)) s"
	grep -q 'xxhash' "$text.err" && touch "$text.nohash"
	cat "$text.err" >&2
	rm -f "$text.err" "$text.out"
}

is_hash()
{
	case $1 in *"exit status"*) return 1 ;; *xxh3-128*) return 0 ;; *) return 1 ;; esac
}

failures=0
# same WORLD LABEL HASH
same()
{
	[ "$3" = "$reference" ] && return
	echo "FAIL: $2 on $1 ranks: '$3', not '$reference'"
	failures=$((failures + 1))
}

# what the processor and the library have: all of them must work
usable="baseline"
for isa in avx2 avx512; do
	flag=$isa
	[ $isa = avx2 ] || flag=avx512bw
	grep -qw $flag /proc/cpuinfo 2> /dev/null || continue
	grep -q "^#define HAVE_$(echo $isa | tr a-z A-Z) 1" config.h || continue
	usable="$usable $isa"
done
echo "instruction sets: $usable"
hash_of 1 --steps 0 > /dev/null
[ ! -e "$text.nohash" ] || { rm -f "$text.nohash"; skip "built without libxxhash"; }

# staged_matrix WORLD: collectives through host memory, in pieces
staged_matrix()
{
	n=$1
	for strategy in ddp zero3; do
		same $n "$strategy, staged" "$(export SHARDRT_PEER_MEMORY=no SHARDRT_STAGING_BYTES=16k
			hash_of $n --strategy $strategy)"
	done
}

# cpu_matrix WORLD
cpu_matrix()
{
	n=$1
	for strategy in ddp zero3; do
		for streams in inline threads; do
			for isa in $usable; do
				for threads in 1 2 3; do
					# the short form takes each value, not each combination
					case $length.$strategy.$streams.$isa.$threads in
					long.* | short.ddp.*.baseline.2 | short.zero3.inline.*.1 | \
						short.zero3.threads.*.3) ;;
					*) continue ;;
					esac
					same $n "$strategy, $streams, $isa, $threads threads" \
						"$(export SHARDRT_CPU_ISA=$isa SHARDRT_CPU_STREAMS=$streams
						hash_of $n --strategy $strategy --threads $threads)"
				done
			done
		done
	done
	staged_matrix $n
	# other sums in another order: the hash must see them
	for other in "--seed 2" "--accumulate 2 --accumulate-mode last" "--clip 0.4"; do
		case $n.$other in *.--acc*) [ $n = 3 ] || [ $n = 5 ] || continue ;; esac
		h=$(hash_of $n $other)
		is_hash "$h" && [ "$h" != "$reference" ] ||
			{ echo "FAIL: $other on $n ranks: '$h'"; failures=$((failures + 1)); }
	done
}

# device_matrix WORLD: on another backend
device_matrix()
{
	n=$1
	for form in $forms; do
		use_form $form
		for strategy in ddp zero3; do
			same $n "$strategy, $SHARDRT_BACKEND, $form" "$(hash_of $n --strategy $strategy)"
		done
	done
	staged_matrix $n
}

# mixed_matrix WORLD: ranks of the cpu and of another backend in one job
mixed_matrix()
{
	n=$1
	for mix in "cpu+$SHARDRT_BACKEND" "$SHARDRT_BACKEND+cpu"; do
		before=$failures
		by_rank="sh $srcdir/tests/harness/by_rank.sh $mix"
		for strategy in ddp zero3; do
			same $n "$strategy, $mix" "$(hash_of $n --strategy $strategy)"
		done
		staged_matrix $n
		cell_of $mix $n "$([ $failures = $before ] && echo pass || echo fail)"
	done
	by_rank=
}

seen=
for n in $worlds; do
	before=$failures
	reference=$(unset SHARDRT_DEVICE; SHARDRT_BACKEND=cpu; hash_of $n --strategy ddp --threads 1)
	is_hash "$reference" || { echo "FAIL: no hash on $n ranks: $reference"; exit 1; }
	echo "$n ranks: $reference"
	case " $seen " in
	*" $reference "*) echo "FAIL: two numbers of ranks have one hash" && failures=1 ;;
	esac
	seen="$seen $reference"
	if [ "$SHARDRT_BACKEND" = cpu ]; then
		cpu_matrix $n
	else
		device_matrix $n
	fi
	cell $n "$([ $failures = $before ] && echo pass || echo fail)"
	[ "$SHARDRT_BACKEND" = cpu ] || [ $n = 1 ] || mixed_matrix $n
done
[ $failures = 0 ]
