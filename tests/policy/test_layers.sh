#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# What the sources must keep to, by grep: includes go one way (tools, models -> runtime -> collectives ->
# device -> kernels -> base; backends -> device), vendors' headers stay in their folder, the library neither prints, exits
# nor reads the environment; licence lines, lengths of files, leftovers. The rules are in layers.awk; each is
# proven by a planted violation first.
rules=$(cd "$srcdir" && pwd)/tests/policy/layers.awk
awk=${AWK:-awk}
failed=0

dir=tests/layers.tmp
rm -rf $dir
mkdir -p $dir || exit 1

# plant FILE LINE WORDS: a file with this line must be complained about with these words.
plant()
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

plant base/a.c '#include "kernels/a.h"' 'base is below kernels'
plant kernels/a.c '#include "device/device.h"' 'kernels is below device'
plant device/a.c '#include "backends/a.h"' 'reached through device'
plant runtime/a.c '#include "backends/a.h"' 'reached through device'
plant backends/cpu/a.c '#include "device/backend.h"' ''
plant backends/cpu/a.c '#include "collectives/a.h"' 'backends is below collectives'
plant collectives/a.c '#include "runtime/a.h"' 'collectives is below runtime'
plant runtime/a.c '#include "models/a.h"' 'runtime is below models'
plant models/a.c '#include "runtime/a.h"' 'models uses only public headers'
plant tools/a.c '#include "base/base.h"' 'tools uses only public headers'
plant examples/a.c '#include "models/gpt.h"' 'examples use only public headers'
plant include/shardrt/a.h '#include "base/base.h"' 'a public header includes an internal one'
plant runtime/a.c '#include "a.h"' 'named from the top'
plant runtime/a.c '#include "device/device.h"' ''
plant tools/a.c '#include "models/gpt.h"' ''
plant models/a.c '#include <shardrt/engine.h>' ''
plant runtime/a.c '# include <cuda_runtime.h>' 'belongs to backends/cuda'
plant backends/cuda/a.c '#include <cuda.h>' ''
plant tests/fakes/fake_cuda/a.c '#include <cuda.h>' ''
plant backends/a.c '#include <CL/cl.h>' 'belongs to backends/opencl'
plant collectives/shm/a.c '#include <ucp/api/ucp.h>' 'belongs to collectives/transports/ucx'
plant collectives/transports/nccl/a.c '#include <nccl.h>' 'belongs to backends/cuda'
plant backends/opencl/a.c '#include <CL/cl.h>' ''
plant runtime/a.c 'x = getenv("A");' 'reads the environment'
plant models/a.c 'x = getenv ("A");' 'reads the environment'
plant runtime/a.c '/* getenv() */ s = "getenv()"; /* printf()' ''
plant runtime/a.c '	printf("a");' 'does not print'
plant runtime/a.c '	fprintf(stderr, "a");' 'does not print'
plant runtime/a.c '	fprintf(out, "a"); snprintf(s, n, "b");' ''
plant backends/cpu/a.c 'if (x) exit(1);' 'does not end the process'
plant base/a.c 'abort ();' 'does not end the process'
plant base/a.c 'v->abort(v); v.exit(1);' ''
plant tools/a.c 'exit(1);' ''
plant base/a.c "$(printf 'x;\t')" 'blanks at the end'
plant base/a.c "/* TO""DO: more */" 'a leftover'
plant base/a.c "/* X""XX */" 'a leftover'
plant base/a.c 'mkstemp("a.XXXXXX");' ''
printf 'a\nb\nc\n' > $dir/base/b.c
(cd $dir && $awk -f "$rules" base/b.c) | grep -q 'no SPDX' || { echo "no SPDX line goes unseen"; failed=1; }
rm -rf $dir

files=$(grep -E '^(include|base|kernels|device|backends|collectives|runtime|models|tools|tests|bench|examples|scripts)/.*\.([ch]|sh|awk|py|mk)$|^m4/srt_.*\.m4$|^(configure\.ac|Makefile\.am)$' tests/sources.txt)
[ -n "$files" ] || { echo "tests/sources.txt has no source"; exit 1; }
# shellcheck disable=SC2086
out=$(cd "$srcdir" && $awk -f "$rules" $files) || failed=1
[ -z "$out" ] || { echo "$out"; failed=1; }
exit $failed
