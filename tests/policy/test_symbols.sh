#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# What the libraries let out and pull in: exported symbols are exactly the public prototypes; all other
# names of the static library begin with srt_; no libm function but the exactly rounded ones; no
# writable globals but those named here; it is linked to the packages that configure found and to no other.
# Modules of backends export one function and need nothing of the library.
lib=.libs/libshardrt.so
nm=${NM:-nm}
failed=0
tmp=symbols.tmp
skip() { echo "SKIP: $*"; exit 77; }
[ -f $lib ] || skip "no shared library was built"
command -v "${nm%% *}" > /dev/null || skip "no nm"

# exports LIBRARY HEADER...: checks what a library lets out.
exports()
{
	name=$1
	shift
	# The compiler's own view of the prototypes, not scripts/symbols.awk which made the symbol map.
	for header; do
		echo "#include <shardrt/$header>"
	done > $tmp.c
	# Prototypes of the other library, which the headers include, are taken off.
	# shellcheck disable=SC2086
	${CC:-cc} -E -P -I"$srcdir/include" -x c $tmp.c | tr '\n' ' ' |
		tr ';' '\n' | sed -n 's/.*visibility("default")))//p' |
		sed 's/(.*//; s/.*[ *]//' | sort > $tmp.all
	comm -23 $tmp.all $tmp.below > $tmp.prototypes
	$nm -D --defined-only .libs/$name.so | awk '$2 ~ /[TtWi]/ { sub(/@.*/, "", $3); print $3 }' | sort > $tmp.exported
	$nm -D --defined-only .libs/$name.so | awk '$2 !~ /[TtWiA]/' > $tmp.data
	if ! diff $tmp.prototypes $tmp.exported > $tmp.diff; then
		echo "public prototypes (<) and exported symbols (>) of $name differ:"
		grep '^[<>]' $tmp.diff
		failed=1
	fi
	[ -s $tmp.prototypes ] || { echo "no public prototype of $name was found"; failed=1; }
	if [ -s $tmp.data ]; then
		echo "$name exports data:"
		cat $tmp.data
		failed=1
	fi
	if [ -f .libs/$name.a ] && [ -z "$SRT_SANITIZE" ]; then
		$nm -g --defined-only .libs/$name.a 2> /dev/null |
			awk 'NF == 3 && $3 !~ /^srt_/ { print $3 ": a global name without srt_"; bad = 1 }
			     END { exit bad }' || failed=1
	fi
}
: > $tmp.below
exports libshardrt ops.h shardrt.h
cp $tmp.prototypes $tmp.below
exports libshardrt-models models/families.h models/generate.h models/layers.h models/lora.h models/rotary.h models/tape.h \
	models/tokenizer.h

# libshardrt-models needs public functions of libshardrt alone, has no writable data, and is linked to libshardrt and the
# packages of decoders and tokenizers, apart from the system's libraries.
models=.libs/libshardrt-models.so
$nm -D --undefined-only $models | awk '{ sub(/@.*/, "", $NF); print $NF }' | grep '^srt_' | sort | comm -23 - $tmp.below > $tmp.needs
[ ! -s $tmp.needs ] || { echo "$models needs functions that libshardrt does not export:"; cat $tmp.needs; failed=1; }
if [ -z "$SRT_SANITIZE" ]; then
	$nm -f sysv $models | awk -F'|' '$NF ~ /^\.(t?data|t?bss)$/ { gsub(/ /, "", $1); print $1 }' |
		grep -vE '^(completed\.[0-9]+|__dso_handle|__TMC_END__|__bss_start|_edata|_end)$' > $tmp.globals
	[ ! -s $tmp.globals ] || { echo "$models has writable globals:"; cat $tmp.globals; failed=1; }
fi

# Results of other libm functions differ between its versions and processors.
$nm -D --undefined-only $lib | awk '{ sub(/@.*/, "", $NF); print $NF }' | sort -u |
	grep -E '^(a?(sin|cos|tan)h?|sincos|atan2|a?(sinh|cosh|tanh)|exp(2|10|m1)?|log(2|10|1p|b)?|pow|cbrt|hypot|erfc?|[tl]gamma|fmod|remainder|rint|nearbyint|l?lround|l?lrint|round|trunc|fmin|fmax|fdim|ldexp|frexp|modf|scalbl?n)[fl]?$' > $tmp.libm
if [ -s $tmp.libm ]; then
	echo "libm functions that the numeric contract does not allow:"
	cat $tmp.libm
	failed=1
fi

# Writable, process-wide data. receiver: the log's callback; last_error and in_function: of each thread; registry:
# the backends; probes: what drivers answered; awake_clock: srt_awake_s(); recorder: the thread that handles SIGUSR1, of collectives/flight/flight_file.c;
# ngenerations: joins of the process; pmix: the functions and the connection of libpmix;
# srt_load_piece_nelem: set by tests; ucx_library: UCX once loaded; srt_ucx_nlocks: whether this thread calls UCX; __cpu_*: libgcc's
# knowledge of the processor.
if [ -z "$SRT_SANITIZE" ]; then
	$nm -f sysv $lib | awk -F'|' '$NF ~ /^\.(t?data|t?bss)$/ { gsub(/ /, "", $1); print $1 }' |
		sed 's/\.[0-9]*$//; s/.*\.//' | sort -u |
		grep -vxE 'receiver|last_error|in_function|registry|probes|awake_clock|srt_load_piece_nelem|srt_ucx_nlocks|ucx_library|joined|joined_lock|recorder|once|ngenerations|pmix|__cpu_model|__cpu_features2|completed|__dso_handle|__TMC_END__|__bss_start|_edata|_end' > $tmp.globals
	if [ -s $tmp.globals ]; then
		echo "writable globals that tests/policy/test_symbols.sh does not list:"
		cat $tmp.globals
		failed=1
	fi
fi

# The libraries that it is linked to: those of the compiler and of the system, which are not compared, and the
# packages that configure found. What backends and oneDNN need is loaded at run time.
objdump=${OBJDUMP:-objdump}
$objdump -p $lib | awk '$1 == "NEEDED" { print $2 }' | sed 's/^lib//; s/[-.].*//' | sort > $tmp.linked
grep -vxE 'c|dl|gcc_s|ld|m|pthread|rt|(a|t|ub)san' $tmp.linked > $tmp.needed
for package in hwloc jansson sodium xxhash; do
	! grep -qi "^#define HAVE_$package 1" config.h || echo $package
done > $tmp.found
grep -qx c $tmp.linked || { echo "$objdump -p $lib does not name the C library"; failed=1; }
if ! diff $tmp.found $tmp.needed > $tmp.diff; then
	echo "the packages that configure found (<) and those that $lib is linked to (>) differ:"
	grep '^[<>]' $tmp.diff
	failed=1
fi

$objdump -p $models | awk '$1 == "NEEDED" && $2 !~ /^(lib(c|m|gcc_s|pthread|[atu][a-z]*san)\.|ld-)/ {
	sub(/^lib/, "", $2); sub(/(-[0-9]+)?\.so.*/, "", $2); print $2 }' | sort > $tmp.needed
{
	echo shardrt
	for package in jansson pcre2 utf8proc; do
		! grep -qi "^#define HAVE_$package 1" config.h || echo $package
	done
} | sort > $tmp.found
if ! diff $tmp.found $tmp.needed > $tmp.diff; then
	echo "the packages that configure found (<) and those that $models is linked to (>) differ:"
	grep '^[<>]' $tmp.diff
	failed=1
fi

for module in .libs/shardrt_backend_*.so tests/fakes/backend_toy/.libs/shardrt_backend_*.so \
	tests/fakes/backend_linked/.libs/shardrt_backend_*.so \
	tests/fakes/backend_late/.libs/shardrt_backend_*.so; do
	[ -f "$module" ] || continue
	exported=$($nm -D --defined-only "$module" | awk '{ print $NF }')
	[ "$exported" = srt_backend_module ] || { echo "$module exports: $exported"; failed=1; }
	needed=$($nm -D --undefined-only "$module" | awk '$NF ~ /^srt_/ { print $NF }')
	[ -z "$needed" ] || { echo "$module needs of the library: $needed"; failed=1; }
	ldd "$module" | grep libshardrt && { echo "$module is linked to the library"; failed=1; }
	# NVIDIA's are loaded where they are, so that the module says what is missing.
	ldd "$module" | grep -iE 'libcu(da|blas|dnn)|nvidia|nccl|nvrtc' &&
		{ echo "$module is linked to a library of NVIDIA's"; failed=1; }
done
for backend in opencl cuda; do
	grep -qi "^#define HAVE_$backend 1" config.h || continue
	[ -f .libs/shardrt_backend_$backend.so ] || { echo "no module for $backend was built"; failed=1; }
done
rm -f $tmp.*
exit $failed
