#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# What the sources must keep to, by grep: includes go one way (tools, models -> runtime -> collectives ->
# device -> kernels -> base; backends -> device), the headers of drivers and libraries stay in their
# folder, the library neither prints, exits nor reads the environment; licence lines, lengths of files,
# leftovers. The rules are in layers.awk; each is proven by an injected violation first.
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
inject models/a.c '#include "runtime/a.h"' 'models uses only public headers'
inject tools/a.c '#include "base/base.h"' 'tools uses only public headers'
inject examples/a.c '#include "models/gpt.h"' 'examples use only public headers'
inject examples/a.c '#include "model.h"' ''
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

files=$(grep -E '^(include|base|kernels|device|backends|collectives|runtime|models|tools|tests|bench|examples|scripts)/.*\.([ch]|sh|awk|py|mk)$|^m4/srt_.*\.m4$|^(configure\.ac|Makefile\.am)$' tests/sources.txt)
[ -n "$files" ] || { echo "tests/sources.txt has no source"; exit 1; }
# shellcheck disable=SC2086
out=$(cd "$srcdir" && $awk -f "$rules" $files) || failed=1
[ -z "$out" ] || { echo "$out"; failed=1; }
exit $failed
