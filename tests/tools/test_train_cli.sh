#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# shardrt-train from the outside, on one and two ranks: every mistake in options and data gives status 2 and
# one line; the log has an object a step with all keys; saved parameters load again with the same
# hash and generate the same text under any strategy; what has diverged is not saved; Ctrl-C and
# SIGTERM save and end cleanly.
. "$srcdir/tests/harness/run_ranks.sh"
. "$srcdir/tests/harness/wait.sh"
[ -x ./shardrun ] || skip "shardrun was not built"
tmp=$PWD/tests/train_cli.tmp
rm -rf "$tmp"
mkdir -p "$tmp" || exit 1
trap 'end_background; rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
failures=0

bad()
{
	echo "FAIL: $*"
	failures=$((failures + 1))
}

text=$tmp/text
i=0
while [ $i -lt 60 ]; do
	echo "$i little words make line $i of the text that the test trains on"
	i=$((i + 1))
done > "$text"
small="--text $text --layers 1 --heads 2 --width 16 --context 16 --batch 4 --eval-every 0"

several="1 2"
[ "$SRT_TEST_WORLDS" != largest ] || several=2

TOY_DELAY_US=0 # what is timed below is not the device
export TOY_DELAY_US

# ---- mistakes, which no device has to do with: wrong WORDS OPTIONS...
wrong()
{
	[ "$SHARDRT_BACKEND" = cpu ] || return 0
	words=$1
	shift
	for n in $several; do
		status=0
		./shardrun -n $n ./shardrt-train "$@" > "$tmp/out" 2> "$tmp/err" || status=$?
		[ $status = 2 ] || bad "$* on $n ranks: exit status $status, not 2: $(cat "$tmp/err")"
		[ "$(grep -c '^shardrt-train:' "$tmp/err")" = 1 ] ||
			bad "$* on $n ranks: not one line: $(cat "$tmp/err")"
		grep -q -e "$words" "$tmp/err" || bad "$*: no '$words' in: $(cat "$tmp/err")"
		[ ! -s "$tmp/out" ] || bad "$*: prints: $(cat "$tmp/out")"
	done
}

: > "$tmp/empty"
echo tiny > "$tmp/tiny"
wrong "unknown option '--foo'" --foo 1
wrong "unexpected argument 'foo'" foo
wrong "no text to train on" --steps 3
wrong "needs a value" --text
wrong "is empty" --text "$tmp/empty"
wrong "No such file" --text "$tmp/missing"
wrong "not a regular file" --text "$tmp"
wrong "longer than the training part" --text "$tmp/tiny"
wrong "value 120, but the vocabulary has 0" $small --vocab 100
wrong "cannot be divided among" $small --batch 3 --accumulate 2
wrong "must be a multiple of" $small --batch 9 --accumulate 2
wrong "not '12x'" $small --steps 12x
wrong "not '-3'" $small --batch -3
wrong "not '0'" $small --batch 0
wrong "not 'nan'" $small --lr nan
# Reliability: an option's number that is too large | the sentence had the lower bound alone | it has both
wrong "clip needs a number from 0 to 1e+30, not '1e38'" $small --clip 1e38
wrong "clip needs a number from 0 to 1e+30, not 'inf'" $small --clip inf
wrong "batch needs a whole number from 1 to 2147483647, not '2147483648'" $small --batch 2147483648
wrong "seed needs a whole number from 0 to 9000000000000000, not '1e3'" $small --seed 1e3
wrong "one of ddp|zero1|zero2|zero3|hybrid, not 'zero'" $small --strategy zero
for mesh in "" shard=1 replicate=2 replicate=2,tp=2 replicate=1,shard=2,dp=1; do
	wrong "hybrid needs --mesh with replicate=R, and either shard=S or dp=S" $small --strategy hybrid ${mesh:+--mesh $mesh}
done
for mesh in dp=2,shard=2 dp=1,shard=2 replicate=2 replicate=2,tp=2; do
	for strategy in zero1 zero2 zero3; do
		wrong "zero1 to zero3 need --mesh with either shard=N or dp=N" $small --strategy $strategy --mesh $mesh
	done
done
for mesh in shard=2 dp=2,shard=2 replicate=2,shard=2 replicate=2,dp=2; do
	wrong "ddp needs --mesh with either replicate=N or dp=N, and no shard" $small --strategy ddp --mesh $mesh
done
for mesh in "" shard= shard=0 shard=2x rows=2 shard=1,shard=1 shard=1, =2 shard=99999999999; do
	wrong "needs NAME=N,NAME=N ..., each name once, of replicate|shard|dp|tp, not '$mesh'" \
		$small --strategy hybrid --mesh "$mesh"
done
wrong "mesh replicate=2,shard=2 has 4 ranks, but the job has" $small --strategy hybrid --mesh replicate=2,shard=2
wrong "one of auto, always, never, or a number of ranks" $small --reshard yes
wrong "one of no|views|padded, not 'yes'" $small --flat yes
wrong "one of fp32|bf16|fp16, not 'half'" $small --dtype half
wrong "one of fp32|compute, not 'fp16'" $small --reduce-dtype fp16
wrong "one of none|plain|sharded, not 'yes'" $small --scaler yes
wrong "one of none|plain|sharded, not ''" $small --scaler=
wrong "fp16 needs --scaler: most gradients are below" $small --dtype fp16
wrong "fp16 needs --scaler: most gradients are below" $small --scaler none --dtype fp16
wrong "GradScaler refuses fp16 gradients" $small --pure --dtype fp16 --scaler
wrong "pure needs --dtype bf16 or fp16" $small --pure
wrong "init-scale needs --scaler" $small --init-scale 1024
wrong "not '0'" $small --scaler --init-scale 0
wrong "not 'inf'" $small --scaler --init-scale inf
wrong "no value is allowed" $small --hash=yes
wrong "above --lr" $small --min-lr 1
wrong "is more than --steps" $small --steps 5 --warmup 6
wrong "unknown --preset 'huge'" --text "$text" --preset huge
wrong "cannot be divided among 3 heads" $small --heads 3
wrong "cannot read --init" $small --init "$tmp/missing"
wrong "needs --init FILE" --generate 5
wrong "prompt must not be empty" $small --sample 5 --prompt ""
wrong "prompt has a byte" $small --sample 5 --vocab 122 --prompt "{"
wrong "cannot write --save" $small --save "$tmp/no/folder/x"
wrong "not a regular file" $small --save "$tmp"
wrong "not a regular file" $small --save /dev/null
wrong "is not the name of a file" $small --save ""
wrong "cannot write --log" $small --log "$tmp/no/folder/x"

# safetensors HEADER: a file with this header and no data
safetensors() { printf '\'"$(printf %o ${#1})"'\0\0\0\0\0\0\0%s' "$1"; }

sizes='heads=2 width=16 context=16 vocab=256 mult=4 tied=1 attn_bias=0'
safetensors "{\"__metadata__\":{\"shardrt.gpt\":\"layers=50000000 $sizes\"}}" > "$tmp/claim"
wrong "it has 0 tensors, but a model of 50000000 layers has 550000004" --text "$text" --init "$tmp/claim"
wrong "it has 0 tensors, but a model of 50000000 layers" --init "$tmp/claim" --generate 1
safetensors "{\"__metadata__\":{\"shardrt.gpt\":\"layers=1 $sizes more=1\"}}" > "$tmp/more"
wrong "cannot parse the model size in its metadata: 'layers=1 .* more=1'" $small --init "$tmp/more"
safetensors '{"__metadata__":{"shardrt.gpt":"\u001b]0;owned\u0007\u009b1m"}}' > "$tmp/escapes"
wrong "cannot parse the model size in its metadata: '?]0;owned???1m'" $small --init "$tmp/escapes"

# Reliability: a claim of a file, such as 50000000 layers | endless work | refused within a second
#
# ---- files that do not fit or do not come: found before training
wrong "needs --save FILE" $small --save-every 5
if command -v mkfifo > /dev/null; then
	mkfifo "$tmp/fifo"
	wrong "not a regular file" --text "$tmp/fifo"
fi
if [ "$SHARDRT_BACKEND" = cpu ]; then
	(
		ulimit -f 100 # 50 or 100 KiB: enough for all other files
		wrong "cannot allocate [0-9]* bytes: File too large" $small --width 64 --save "$tmp/toolarge"
		exit $failures
	) || failures=$((failures + 1))
	# Reliability: texts that differ between ranks | each trained on its own, without a word | refused
	sed 's/little/LITTLE/' "$text" > "$tmp/text1"
	ln -s "$text" "$tmp/by_rank.0"
	ln -s "$tmp/text1" "$tmp/by_rank.1"
	status=0
	./shardrun -n 2 sh -c "exec ./shardrt-train $small --text $tmp/by_rank.\$SHARDRT_RANK --steps 2" \
		> "$tmp/out" 2> "$tmp/err" || status=$?
	[ $status = 2 ] && grep -q "the ranks have different texts: .* on rank 1, but .* on rank 0" "$tmp/err" ||
		bad "two texts: status $status: $(cat "$tmp/err")"
fi
for variable in SHARDRT_TIMEOUT=soon SHARDRT_THREADS=x SHARDRT_LOG=loud SHARDRT_NUMERICS=odd; do
	export "$variable"
	wrong "$variable in the environment" $small
	unset "${variable%%=*}"
done

# ---- help and version, once
for option in -h --help --version; do
	./shardrun -n 2 ./shardrt-train $option > "$tmp/out" 2>&1 || bad "$option: status $?"
	[ "$(grep -c -e '^usage:' -e '^shardrt-train [0-9]' "$tmp/out")" = 1 ] ||
		bad "$option: $(cat "$tmp/out")"
done
for option in $(sed -n 's/^wrong .* \(--[a-z0-9-]*\) .*/\1/p' "$srcdir/tests/tools/test_train_cli.sh"); do
	case $option in --foo) continue ;; esac
	./shardrt-train --help | grep -q -e "  $option " || bad "--help lacks $option"
done

# ---- log, hash, save, load
has() { grep -q "^#define HAVE_$1 1" config.h; }
want_hash=
has XXHASH && want_hash=--hash
./shardrun -n 2 ./shardrt-train $small --steps 6 --eval-every 3 --eval-batches 0 --log "$tmp/log" $want_hash \
	--save "$tmp/model" > "$tmp/out" 2>&1 || bad "training: status $?: $(cat "$tmp/out")"
hash=$(grep '^hash: numerics [0-9]* exact, xxh3-128 [0-9a-f]\{32\}$' "$tmp/out")
[ -n "$hash" ] || [ -z "$want_hash" ] || bad "no hash line: $(cat "$tmp/out")"
cp "$tmp/out" "$tmp/trained"
[ -n "$want_hash" ] || wrong "needs libxxhash" $small --hash
grep -q '^step 6/6 .* validation loss' "$tmp/trained" || bad "no progress: $(cat "$tmp/trained")"
[ "$(wc -l < "$tmp/log")" = 6 ] || bad "the log has $(wc -l < "$tmp/log") lines, not 6"
number='-\{0,1\}[0-9][0-9.e+-]*'
pattern='^{"step": [1-6]'
speed='flops' # mfu is there where the peak is known
[ "$SHARDRT_BACKEND" != cpu ] || [ "$(uname -m)" != x86_64 ] || speed='flops peak_flops mfu'
for key in loss grad_norm lr step_s tokens_per_s $speed launches rss_bytes; do
	pattern="$pattern, \"$key\": $number"
done
pattern="$pattern, \"numerics\": \"exact\""
[ "$(grep -c "$pattern\(, \"val_loss\": $number\)\{0,1\}}\$" "$tmp/log")" = 6 ] ||
	bad "lines of the log are malformed: $(cat "$tmp/log")"
peak=$(sed -n 's/^peak \([0-9.]*\) GFLOP.s a rank (measured: independent FMAs)$/\1/p' "$tmp/trained")
case $speed in
*mfu)
	tr -d '{}",:' < "$tmp/log" | awk -v peak="$peak" '
		{ for (i = 1; i < NF; i += 2) v[$i] = $(i + 1)
		  mfu = v["flops"] / v["step_s"] / v["peak_flops"] / v["mfu"] - 1
		  named = v["peak_flops"] / 1e9 - peak
		  if (mfu * mfu > 1e-14 || named * named > 0.003 || !(v["mfu"] > 0)) bad++ }
		END { exit bad > 0 || NR != 6 }' || bad "mfu is not flops / step_s / peak: $peak, $(cat "$tmp/log")"
	;;
*) [ -z "$peak" ] || bad "a peak of a device whose peak is not known: $peak" ;;
esac
[ "$(grep -c val_loss "$tmp/log")" = 2 ] || bad "validated not twice: $(cat "$tmp/log")"

[ -s "$tmp/model" ] || bad "nothing was saved"
if [ -n "$hash" ]; then
	for n in 1 3; do
		for strategy in ddp zero3; do
			again=$(./shardrun -n $n ./shardrt-train --text "$text" --batch 3 --steps 0 \
				--strategy $strategy --init "$tmp/model" --hash | grep '^hash')
			[ "$again" = "$hash" ] || bad "loaded on $n ranks, $strategy: $again, not $hash"
			./shardrun -n $n ./shardrt-train --init "$tmp/model" --generate 40 \
				--prompt lit --strategy $strategy --seed 3 > "$tmp/text.$n.$strategy" ||
				bad "generating on $n ranks, $strategy: status $?"
			cmp -s "$tmp/text.1.ddp" "$tmp/text.$n.$strategy" ||
				bad "another text on $n ranks, $strategy"
		done
	done
	[ "$(wc -c < "$tmp/text.1.ddp")" = 44 ] || bad "text: $(cat "$tmp/text.1.ddp")"
	wrong "--init" $small --init "$tmp/model" --width 32
	wrong "--init" $small --init "$text"
fi

# ---- more memory than there is: said before any is taken, with the rows of the plan
if [ "$SHARDRT_BACKEND" = cpu ]; then
	for n in 1 2; do
		./shardrun -n $n ./shardrt-train $small --width 262144 > "$tmp/out" 2> "$tmp/err" &&
			bad "a model of 12 TiB on $n ranks: trained"
		grep 'GiB is free' "$tmp/err" | grep -q 'scratch of matrix products' ||
			bad "a model of 12 TiB on $n ranks: $(cat "$tmp/err")"
	done
fi

# ---- no steps: the validation at the end is left, and logged
./shardrun -n 2 ./shardrt-train --text "$text" --batch 4 --init "$tmp/model" --steps 0 \
	--eval-every 5 --log "$tmp/log0" > "$tmp/out" 2>&1 || bad "no steps: $(cat "$tmp/out")"
last=$(sed -n 's/^step 6.*\(validation loss .*\)/\1/p' "$tmp/trained")
grep -q "^step 0/0  ${last:-none}\$" "$tmp/out" || bad "not '$last': $(cat "$tmp/out")"
grep -q '^{"step": 0, "loss": null,.*"val_loss": [0-9.]*}$' "$tmp/log0" ||
	bad "no steps: $(cat "$tmp/log0")"

# ---- without --eval-batches a validation reads as many batches as the steps before it
for batches in "" "--eval-batches 3"; do
	./shardrun -n 2 ./shardrt-train $small --steps 6 --eval-every 3 $batches > "$tmp/out" 2>&1 || bad "$batches: $(cat "$tmp/out")"
	sed -n 's/^step 6.*\(validation loss .*\)/\1/p' "$tmp/out" >> "$tmp/validations"
done
[ "$(wc -l < "$tmp/validations") $(sort -u "$tmp/validations" | wc -l)" = "2 1" ] && ! grep -qx "$last" "$tmp/validations" ||
	bad "validations of 3 batches: $(cat "$tmp/validations"); of all: $last"

# ---- divergence: one warning, nothing is saved, also when a signal ends it
echo good > "$tmp/kept"
status=0
./shardrun -n 2 ./shardrt-train $small --steps 70 --optimizer sgd --lr 1e6 --min-lr 1e6 --clip 0 \
	--warmup 0 --save "$tmp/kept" > "$tmp/out" 2> "$tmp/err" || status=$?
[ $status = 1 ] || bad "diverged: status $status: $(cat "$tmp/err")"
[ "$(grep -c '^shardrt-train: warning: the loss is not finite since step [0-9]*:' "$tmp/err")" = 1 ] ||
	bad "diverged: not told once: $(cat "$tmp/err")"
[ "$(grep -c '^shardrt-train: the loss is not finite since step.*kept is unchanged' "$tmp/err")" = 1 ] ||
	bad "diverged: the file: $(cat "$tmp/err")"
[ "$(cat "$tmp/kept")" = good ] || bad "diverged: the file was overwritten"
# Reliability: a run with --checkpoint that diverges | status 0, and no word that nothing is saved | status 1 and a sentence
# with the remedy
if has XXHASH && has JANSSON; then
	status=0
	./shardrun -n 2 ./shardrt-train $small --steps 70 --optimizer sgd --lr 1e6 --min-lr 1e6 --clip 0 --warmup 0 \
		--checkpoint "$tmp/diverged" > "$tmp/out" 2> "$tmp/err" || status=$?
	[ $status = 1 ] && [ "$(grep -c 'no checkpoint is saved; .*resume and a lower --lr' "$tmp/err")" = 1 ] ||
		bad "diverged with --checkpoint: status $status: $(cat "$tmp/err")"
fi

# ---- a log on a full disk is told once; a progress line never exceeds its terminal
if [ -c /dev/full ]; then
	./shardrun -n 2 ./shardrt-train $small --steps 4 --log /dev/full > "$tmp/out" 2> "$tmp/err" ||
		bad "full disk: status $?"
	[ "$(grep -c 'the log is incomplete' "$tmp/err")" = 1 ] ||
		bad "full disk: not told once: $(cat "$tmp/err")"
fi
# Reliability: the reader of the standard output ends, as head does | SIGPIPE: nothing was saved | training goes on, and is
# saved
{
	(trap '' PIPE && while echo; do :; done) 2> /dev/null # until the reader is gone
	status=0
	./shardrun -n 2 ./shardrt-train $small --steps 4 $want_hash --save "$tmp/unread" 2> "$tmp/err" || status=$?
	echo "$status" > "$tmp/unread.status"
} | true
[ "$(cat "$tmp/unread.status")" = 0 ] && [ -s "$tmp/unread" ] && [ "$(grep -c 'warning: rank 0: the standard output is incomplete: nobody reads it' "$tmp/err")" = 1 ] ||
	bad "output that is not read: status $(cat "$tmp/unread.status"): $(cat "$tmp/err")"
if script -qec true /dev/null < /dev/null > "$tmp/tty" 2>&1; then
	script -qec "stty cols 30; ./shardrt-train $small --steps 30" /dev/null < /dev/null > "$tmp/tty" ||
		bad "on a terminal: status $?"
	longest=$(sed -n '/step/p' "$tmp/tty" | tr '\r' '\n' | sed 's/.\[K//' |
		awk 'length > n { n = length } END { print n }')
	[ "${longest:-0}" = 29 ] || bad "a line of ${longest:-no} characters on 30 columns"
fi

# Reliability: SIGHUP, SIGUSR1 or SIGUSR2 during training | the parameters were lost | they are saved
#
# ---- signals: training that would take for ever ends, with its file and its status
# A sanitizer under load takes its time, and a rank that still saves is not to be killed for it.
wait_s=300
job="./shardrun --timeout 1000 --grace 200"

# A shell starts background commands with SIGINT ignored.
signals=TERM
[ "$SHARDRT_BACKEND" = cpu ] && signals="TERM HUP USR1 USR2"
env --default-signal=INT true 2> /dev/null && signals="$signals INT"
for signal in $signals; do
	rm -f "$tmp/stopped" "$tmp/log"
	with=
	case $signal in
	INT) want=130 with="env --default-signal=INT" ;;
	TERM) want=143 ;;
	HUP) want=129 ;;
	USR1) want=138 ;;
	USR2) want=140 ;;
	esac
	$with $job -n 2 ./shardrt-train $small --steps 100000000 --save "$tmp/stopped" \
		--log "$tmp/log" > "$tmp/out" 2>&1 &
	started
	await_of $started grep -q '"step": 3,' "$tmp/log" || bad "no third step: $(cat "$tmp/out")"
	kill -$signal $started
	reap $started || bad "SIG$signal: goes on"
	[ $status = $want ] || bad "SIG$signal: status $status, not $want: $(cat "$tmp/out")"
	grep -q 'ended by signal' "$tmp/out" || bad "SIG$signal: $(cat "$tmp/out")"
	[ -s "$tmp/stopped" ] || bad "SIG$signal: nothing was saved"
done

# Reliability: a full disk, a file size limit or a lost folder at the last save | the parameters were lost |
# retried, then saved elsewhere
#
# ---- a folder that goes away meanwhile: one line, and the parameters are in a new folder
mkdir "$tmp/gone" "$tmp/elsewhere"
rm -f "$tmp/log"
TMPDIR=$tmp/elsewhere $job -n 2 ./shardrt-train $small --steps 100000000 --save "$tmp/gone/model" \
	--log "$tmp/log" > "$tmp/out" 2> "$tmp/err" &
started
await_of $started grep -q '"step": 3,' "$tmp/log" || bad "no third step: $(cat "$tmp/out")"
rmdir "$tmp/gone"
kill -TERM $started
reap $started || bad "without the folder: goes on"
[ $status = 1 ] || bad "without the folder: status $status: $(cat "$tmp/err")"
[ "$(grep -c '^shardrt-train:.*gone/model: No such file' "$tmp/err")" = 1 ] ||
	bad "without the folder: not told once: $(cat "$tmp/err")"
rescued=$(sed -n 's/.*the parameters are in \([^,]*\), not in --save.*/\1/p' "$tmp/err")
[ -s "${rescued:-/none}" ] || bad "without the folder: nothing in $tmp/elsewhere: $(cat "$tmp/err")"

if [ "$SHARDRT_BACKEND" = cpu ]; then
	# ---- the file of every other step, and the end of a run that was killed
	rm -f "$tmp/stopped" "$tmp/log"
	$job -n 2 ./shardrt-train $small --steps 100000000 --save "$tmp/stopped" --save-every 2 \
		--log "$tmp/log" > "$tmp/out" 2>&1 &
	started
	await_of $started grep -q '"step": 3,' "$tmp/log" || bad "no third step: $(cat "$tmp/out")"
	kill -KILL $started
	reap $started || bad "SIGKILL: goes on"
	./shardrt-train --init "$tmp/stopped" --generate 5 > "$tmp/out" 2>&1 ||
		bad "the file of step 2: $(cat "$tmp/out")"

	# ---- a run from a saved model continues the log
	lines=$(wc -l < "$tmp/log")
	./shardrt-train $small --init "$tmp/stopped" --steps 2 --log "$tmp/log" > "$tmp/out" 2>&1 ||
		bad "continued: $(cat "$tmp/out")"
	[ "$(wc -l < "$tmp/log")" = $((lines + 2)) ] || bad "continued: the log has $(wc -l < "$tmp/log") lines"

	# ---- output that cannot be written
	# Reliability: standard output of shardrt-train on a full disk | status 0 | an error
	if [ -c /dev/full ]; then
		status=0
		./shardrt-train $small --steps 2 > /dev/full 2> "$tmp/err" || status=$?
		[ $status = 1 ] && grep -q 'standard output is incomplete' "$tmp/err" ||
			bad "full standard output: status $status: $(cat "$tmp/err")"
	fi

	# ---- a disk that is full at the end, until somebody makes space. The log is a pipe, so that
	# training does not end before the disk is full.
	mkdir "$tmp/disk"
	if mount -t tmpfs -o size=256k none "$tmp/disk" 2> /dev/null; then
		trap 'end_background; umount "$tmp/disk"; rm -rf "$tmp"' EXIT
		rm -f "$tmp/fifo"
		mkfifo "$tmp/fifo"
		$job -n 2 ./shardrt-train $small --steps 1000 --save "$tmp/disk/model" --log "$tmp/fifo" \
			> "$tmp/out" 2> "$tmp/err" &
		started
		{
			read -r line
			head -c 300000 /dev/zero > "$tmp/disk/filler" 2> /dev/null
			cat > /dev/null
		} < "$tmp/fifo"
		await_of $started grep -q 'No space left on device; trying again' "$tmp/err" ||
			bad "full disk: $(cat "$tmp/err")"
		rm "$tmp/disk/filler"
		reap $started || bad "full disk: goes on"
		[ $status = 0 ] && [ -s "$tmp/disk/model" ] || bad "full disk: status $status: $(cat "$tmp/err")"
	else
		echo "skipped: a full disk, as no tmpfs can be mounted"
	fi
fi

# ---- a validation that would take minutes does not hold up the end
head -c 30000000 /dev/zero | tr '\0' a > "$tmp/long"
rm -f "$tmp/stopped" "$tmp/out"
$job -n 2 ./shardrt-train $small --text "$tmp/long" --eval-every 1 --eval-batches 0 --save "$tmp/stopped" \
	> "$tmp/out" 2>&1 &
started
await_of $started grep -q '^validating: ' "$tmp/out" || bad "does not validate: $(cat "$tmp/out")"
kill -TERM $started
reap $started || bad "SIGTERM: validates on"
[ $status = 143 ] || bad "SIGTERM while validating: status $status: $(cat "$tmp/out")"
grep -q 'after step 1$' "$tmp/out" || bad "SIGTERM while validating: $(cat "$tmp/out")"
! grep -q 'validation loss' "$tmp/out" || bad "SIGTERM: it validates to the end: $(cat "$tmp/out")"
[ -s "$tmp/stopped" ] || bad "SIGTERM while validating: nothing was saved"

# Reliability: a program that is started without descriptors 0 to 2 | its output went into files that it opened, such
# as the log | they are /dev/null
rm -f "$tmp/log"
./shardrt-train $small --steps 100000000 --log "$tmp/log" <&- >&- 2>&- &
started
await_of $started grep -q '"step": 2,' "$tmp/log" || bad "closed descriptors: no second step"
for fd in 0 1 2; do
	file=$(readlink /proc/$started/fd/$fd)
	[ "$file" = /dev/null ] || bad "closed descriptors: $fd is $file"
done
kill -TERM $started
reap $started || bad "closed descriptors: goes on"

# ---- a rank that is killed where the others wait for it to agree: they say about what
if command -v pgrep > /dev/null; then
	rm -f "$tmp/out" # it has the line that is waited for
	$job -k -n 2 ./shardrt-train $small --text "$tmp/long" --eval-every 1 --eval-batches 0 > "$tmp/out" \
		2> "$tmp/err" &
	started
	await_of $started grep -q '^validating: ' "$tmp/out" || bad "does not validate: $(cat "$tmp/out")"
	kill -KILL "$(pgrep -P $started shardrt-train | sed 1q)"
	reap $started || bad "a killed rank: the other goes on"
	grep -q '^shardrt-train: rank [01]: agreement before batch [0-9]* of the validation: an exchange on communicator "world": rank [01] is gone' "$tmp/err" ||
		bad "a killed rank: $(cat "$tmp/err")"
fi

[ $failures = 0 ]
