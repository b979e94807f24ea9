#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# What the sources must keep to, by grep: includes go one way (tools, models -> runtime -> collectives ->
# device -> kernels -> base; backends -> device), the headers of drivers and libraries stay in their
# folder, the library neither prints, exits nor reads the environment; licence lines, lengths of files,
# leftovers. The rules are in layers.awk; each is proven by an injected violation first.
#
# The folders of runtime/engine have an order too: declare < layout < checks < step < values < build. It holds for
# includes and, by rooms.awk, for the calls of the objects in the build tree.
rules=$(cd "$srcdir" && pwd)/tests/policy/layers.awk
awk=${AWK:-awk}
failed=0

dir=tests/layers.tmp
rm -rf $dir
mkdir -p $dir || exit 1

# inject FILE LINE WORDS: a file with this line must be complained about with these words.
inject()
{
	mkdir -p "$dir/${1%/*}"
	printf '/* SPDX-License-Identifier: BSD-3-Clause */\n\n%s\n' "$2" > "$dir/$1"
	out=$(cd $dir && $awk -f "$rules" "$1" 2>&1)
	case $3,$out in
	,) return 0 ;;
	,*) ;;
	*",$1:3: "*"$3"*) return 0 ;;
	esac
	echo "$1: \"$2\" should give \"$3\", gives \"$out\""
	failed=1
}

inject base/a.c '#include "kernels/a.h"' 'base is below kernels'
inject kernels/a.c '#include "device/device.h"' 'kernels is below device'
inject device/a.c '#include "backends/a.h"' 'reached through device'
inject runtime/a.c '#include "backends/a.h"' 'reached through device'
inject backends/cpu/a.c '#include "device/backend.h"' ''
inject backends/cpu/a.c '#include "collectives/a.h"' 'backends is below collectives'
inject collectives/a.c '#include "runtime/a.h"' 'collectives is below runtime'
inject runtime/a.c '#include "models/a.h"' 'runtime is below models'
inject runtime/a.c '#include "collectives/verify/call_log.h"' ''
inject runtime/a.c '#include "collectives/flight/flight.h"' 'does not include the inside of collectives'
inject runtime/engine/layout/a.c '#include "runtime/engine/step/a.h"' 'runtime/engine/layout is below'
inject runtime/engine/step/a.c '#include "runtime/engine/layout/a.h"' ''
inject runtime/engine/layout/a.c '#include "runtime/engine/engine.h"' ''
inject runtime/checkpoint/formats/a.c '#include "runtime/engine/engine.h"' 'formats of files know no engine'
inject runtime/checkpoint/formats/a.c '#include "runtime/checkpoint/a.h"' 'formats of files know no engine'
inject runtime/checkpoint/formats/a.c '#include "runtime/checkpoint/formats/a.h"' ''
inject runtime/checkpoint/a.c '#include "runtime/checkpoint/formats/a.h"' ''
inject models/a.c '#include "runtime/a.h"' 'models uses only public headers'
inject tools/a.c '#include "base/base.h"' 'tools uses only public headers'
inject examples/a.c '#include "models/gpt.h"' 'examples use only public headers'
inject examples/a.c '#include "model.h"' ''
inject include/shardrt/models/a.h '#include "models/tape_impl.h"' 'a public header includes an internal one'
inject include/shardrt/a.h '#include <shardrt/models/tape.h>' 'libshardrt-models is above libshardrt'
inject runtime/a.c '#include <shardrt/models/tape.h>' 'libshardrt-models is above libshardrt'
inject include/shardrt/a.h '#include "base/base.h"' 'a public header includes an internal one'
inject runtime/a.c '#include "a.h"' 'named from the top'
inject runtime/a.c '#include "device/device.h"' ''
inject tools/a.c '#include "models/gpt.h"' ''
inject models/a.c '#include <shardrt/engine.h>' ''
inject runtime/a.c '# include <cuda_runtime.h>' 'belongs to backends/cuda'
inject backends/cuda/a.c '#include <cuda.h>' ''
inject tests/fakes/fake_cuda/a.c '#include <cuda.h>' ''
inject tests/fakes/null_cuda/a.c '#include <cuda.h>' ''
inject backends/a.c '#include <CL/cl.h>' 'belongs to backends/opencl'
inject include/shardrt/opencl.h '#include <CL/cl.h>' ''
inject include/shardrt/cuda.h '#include <cuda.h>' ''
inject include/shardrt/native.h '#include <cuda.h>' 'belongs to backends/cuda'
inject device/a.c '#include <shardrt/opencl.h>' 'is for programs'
inject tools/a.c '#include <shardrt/cuda.h>' 'is for programs'
inject tests/device/a.c '#include <shardrt/cuda.h>' ''
inject collectives/shm/a.c '#include <ucp/api/ucp.h>' 'belongs to collectives/transports/ucx'
inject collectives/transports/nccl/a.c '#include <nccl.h>' 'belongs to backends/cuda'
inject backends/opencl/a.c '#include <CL/cl.h>' ''
inject runtime/a.c 'x = getenv("A");' 'reads the environment'
inject models/a.c 'x = getenv ("A");' 'reads the environment'
inject runtime/a.c '/* getenv() */ s = "getenv()"; /* printf()' ''
inject runtime/a.c '	printf("a");' 'prints in base/log.c alone'
inject runtime/a.c '	fprintf(stderr, "a");' 'prints in base/log.c alone'
inject base/log.c '	fprintf(stderr, "a");' ''
inject runtime/a.c '	fprintf(out, "a"); snprintf(s, n, "b");' ''
inject backends/cpu/a.c 'if (x) exit(1);' 'does not end the process'
inject base/a.c 'abort ();' 'does not end the process'
inject base/a.c 'v->abort(v); v.exit(1);' ''
inject tools/a.c 'exit(1);' ''
inject base/a.c "$(printf 'x;\t')" 'blanks at the end'
inject base/a.c "/* TO""DO: more */" 'a leftover'
inject base/a.c "/* X""XX */" 'a leftover'
inject base/a.c 'mkstemp("a.XXXXXX");' ''
printf 'a\nb\nc\n' > $dir/base/b.c
(cd $dir && $awk -f "$rules" base/b.c) | grep -q 'no SPDX' || { echo "no SPDX line goes unseen"; failed=1; }
rm -rf $dir

# nm's output for a call between two folders of the engine: FROM TO WORDS ("": it is allowed).
rooms=$(cd "$srcdir" && pwd)/tests/policy/rooms.awk
calls()
{
	out=$(printf 'runtime/engine/%s/.libs/a.o:            U srt_f\nruntime/engine/%s/.libs/b.o:0000000000000000 T srt_f\n' \
		"$1" "$2" | $awk -f "$rooms")
	[ "$out" = "$3" ] || { echo "rooms.awk should print \"$3\", prints \"$out\""; failed=1; }
}
calls build declare ''
calls layout declare ''
calls step values 'runtime/engine/step/a.o: step is below values, calls srt_f()'
calls declare build 'runtime/engine/declare/a.o: declare is below build, calls srt_f()'
# The objects of the sources that there are now: those of moved sources are ignored.
nm=${NM:-nm}
objects=$(cd "$srcdir" && find runtime/engine -name '*.c' | sed 's|\([^/]*\)\.c$|.libs/\1.o|')
# shellcheck disable=SC2086
objects=$(ls $objects 2> /dev/null)
if [ -n "$objects" ] && command -v "${nm%% *}" > /dev/null; then
	# shellcheck disable=SC2086
	$nm -A -g $objects > tests/layers.symbols
	grep -q ' T srt_engine_step$' tests/layers.symbols || { echo "nm prints no symbols of the objects"; failed=1; }
	out=$($awk -f "$rooms" tests/layers.symbols)
	rm -f tests/layers.symbols
	[ -z "$out" ] || { echo "$out"; failed=1; }
fi

files=$(grep -E '^(include|base|kernels|device|backends|collectives|runtime|models|tools|tests|bench|examples|scripts)/.*\.([ch]|cc|hpp|sh|awk|py|mk)$|^m4/srt_.*\.m4$|^(configure\.ac|Makefile\.am)$' tests/sources.txt)
[ -n "$files" ] || { echo "tests/sources.txt has no source"; exit 1; }
# shellcheck disable=SC2086
out=$(cd "$srcdir" && $awk -f "$rules" $files) || failed=1
[ -z "$out" ] || { echo "$out"; failed=1; }
exit $failed
