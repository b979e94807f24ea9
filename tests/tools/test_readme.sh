#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Each command line of README.md runs and does what it says, with the substitutes of readme.sed, on an installed tree. All
# that print the hash of one training print the same. A command whose launcher is not installed, or whose package is
# not in this build, is a skip; in the second case it must fail.
. "$srcdir/tests/harness/port.sh"
. "$srcdir/tests/harness/wait.sh"
. "$srcdir/tests/harness/slurm.sh"
trap 'end_cluster; end_background; rm -rf "$dir"' EXIT
top=$(cd "$srcdir" && pwd)
dir=$(mktemp -d) || exit 1
nskipped=0 npassed=0 nelsewhere=0 hashes=
fail() { echo "FAIL: $*"; sed 's/^/    /' "$dir/out"; exit 1; }
: > "$dir/out"

${MAKE:-make} -s install prefix="$dir/installed" > "$dir/out" 2>&1 || fail "make install"
PATH=$dir/installed/bin:$PATH
LD_LIBRARY_PATH=$(dirname "$(find "$dir/installed" -name 'libshardrt.*' | sed 1q)")
# A program of the README uses the library where the linker finds it without help.
PKG_CONFIG_PATH=$LD_LIBRARY_PATH/pkgconfig
export PATH LD_LIBRARY_PATH PKG_CONFIG_PATH
SHARDRT_TIMEOUT=100 SHARDRT_THREADS=1
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 # the test may run in a container
export SHARDRT_TIMEOUT SHARDRT_THREADS OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM
unset SHARDRT_BACKEND MAKEFLAGS MFLAGS MAKELEVEL
shardrt-info --features > "$dir/features" || fail "shardrt-info --features"

# Commands: the indented lines outside of fenced blocks.
awk '/^```/ { fence = !fence; next } !fence && sub(/^    /, "")' "$top/README.md" | sed 's/  *#.*//' > "$dir/lines"
awk '/^```c$/ { p = 1; next } /^```$/ { p = 0 } p' "$top/README.md" > "$dir/train.c"
[ "$(wc -l < "$dir/lines")" -ge 20 ] || fail "README.md has no commands"
sed -E -f "$top/tests/tools/readme.sed" "$dir/lines" > "$dir/commands" || fail "readme.sed"

# The files of a user: a text, a GPT-2 of transformers (two layers of its names and types), a file of llm.c.
cd "$dir" || exit 1
cp "$top/README.md" text.txt && cp "$top/tests/models/tokenizer.json" . && printf 'The library\nA rank\n' > prompts.txt
printf '#!/bin/sh\nexec %s "$@"\n' "$CC $SRT_SANITIZE" > installed/bin/cc && chmod +x installed/bin/cc
mkdir gpt2 && shardrt-train --text text.txt --layers 2 --heads 2 --width 16 --context 16 --steps 0 --eval-every 0 \
	--save small.safetensors > out 2>&1 && shardrt-ckpt convert --to hf small.safetensors gpt2/model.safetensors \
	>> out 2>&1 || fail "a small GPT-2"
{
	# magic number, version, number of tokens, 1012 zeros, 2000 tokens of 16 bits
	printf '\210\330\064\001\001\000\000\000\320\007\000\000' && head -c 1012 /dev/zero
	for _ in $(seq 500); do
		printf '\001\000\050\000\002\000\144\000'
	done
} > train.bin

# The feature that a command needs, and this build lacks; empty: none.
lacks()
{
	feature=
	case $1 in
	*--checkpoint*) feature="sharded checkpoints" ;;
	*shardrt-tokens*) feature="Hugging Face tokenizers" ;;
	*mpirun* | *srun*) feature="ranks of mpirun and srun" ;;
	*SHARDRT_BACKEND=opencl*) feature="OpenCL devices" ;;
	esac
	for feature in "$feature" "$(case $1 in *--hash*) echo hashes of parameters ;; esac)"; do
		[ -z "$feature" ] || ! grep -q "^$feature  *missing" features || { echo "$feature" && return; }
	done
}

# The launcher of a command that is not installed, or why it cannot start; empty: none.
lacks_launcher()
{
	launcher=$(echo "$1" | tr ' ' '\n' | grep -xE 'mpirun|srun|torchrun' | sed 1q)
	[ -n "$launcher" ] || return
	command -v "$launcher" > /dev/null || echo "$launcher is not installed"
}

skip_command()
{
	echo "skipped: $2: $1"
	nskipped=$((nskipped + 1))
}

while read -r command; do
	case $command in
	output | '') continue ;;
	elsewhere:*) echo "$command" && nelsewhere=$((nelsewhere + 1)) && continue ;;
	esac
	why=$(lacks_launcher "$command")
	[ -z "$why" ] || { skip_command "$command" "$why" && continue; }
	feature=$(lacks "$command")
	if [ -n "$feature" ]; then
		! timeout 200 sh -c "$command" > out 2>&1 < /dev/null || fail "without $feature: $command"
		skip_command "$command" "needs $feature"
		continue
	fi
	case $command in
	srun*)
		can_start_cluster > out && start_cluster >> out 2>&1 ||
			{ skip_command "$command" "$(tail -n 1 out)" && continue; }
		srun --mpi=list 2>&1 | grep -q pmix || { skip_command "$command" "Slurm has no PMIx" && continue; }
		;;
	torchrun*) choose_ports 1 && command=$(echo "$command" | sed "s/torchrun/& --master-port $port/") ;;
	esac
	case $command in export*) eval "$command" && continue ;; esac
	timeout 300 sh -c "$command" > out 2>&1 < /dev/null || fail "$command: exit status $?"
	echo "passed: $command"
	npassed=$((npassed + 1))
	case $command in *--hash*) hashes="$hashes$(sed -n 's/^hash: //p' out)
" ;; esac
done < commands

[ "$(printf '%s' "$hashes" | sort -u | wc -l)" -le 1 ] || { : > out && fail "hashes of one training: $hashes"; }
[ -s model.safetensors ] && [ -s log.jsonl ] && [ -x train ] || fail "files of the README's commands: $(ls)"
# Reliability: the README's program on a thread with a stack of 64 KiB, programs with `ulimit -s 64` | segmentation
# faults: frames of up to 198 kB | they run; no function of the library but kernels has a frame above 8 KiB
SHARDRT_BACKEND=cpu # PoCL needs more
export SHARDRT_BACKEND
if [ -z "$SRT_SANITIZE" ]; then
	cat > thread.c <<'END'
#include <pthread.h>
#include <stddef.h>
int fit(void); /* main() of the README */
static void *run(void *status)
{
	*(int *)status = fit();
	return NULL;
}
int main(void)
{
	pthread_attr_t small;
	pthread_t thread;
	int status = 1;

	if (pthread_attr_init(&small) || pthread_attr_setstacksize(&small, 64 << 10) ||
	    pthread_create(&thread, &small, run, &status) || pthread_join(thread, NULL))
		return 1;
	return status;
}
END
	# shellcheck disable=SC2046
	cc -Dmain=fit -c train.c $(pkg-config --cflags shardrt) > out 2>&1 &&
		cc thread.c train.o $(pkg-config --libs shardrt) -pthread -o thread > out 2>&1 || fail "cc thread.c"
	for n in 1 2 9; do # sums over more than 8 ranks have levels
		shardrun -n $n ./thread > out 2>&1 || fail "the README's program on a small thread of $n ranks"
	done
	(
		ulimit -S -s 64 || exit
		set -- shardrt-train --text text.txt --preset nano --steps 2 --eval-every 0
		[ -n "$(lacks "$* --checkpoint")" ] || set -- "$@" --checkpoint small
		shardrun -n 2 "$@" --save small.safetensors && shardrt-ckpt ls small.safetensors && shardrt-info
	) > out 2>&1 || fail "ulimit -s 64"
fi
echo "$npassed commands passed, $nskipped skipped, $nelsewhere run elsewhere"
