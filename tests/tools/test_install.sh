#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# `make install` with another prefix than configure was given. Then the tree is moved, and used without any
# variable that names its folders: its programs find the library and its modules. The examples are built against
# it, with the flags of shardrt.pc where pkg-config is there, shared and static as far as configure was told to make both,
# and run on two ranks by the installed launcher. Both builds must print the same. Then the program in the README.
skip() { echo "SKIP: $*"; exit 77; }
fail() { echo "FAIL: $*"; exit 1; }
examples="grpo train_own train_all train_llama train_modules train_tape"
dest=$PWD/tests/install.tmp
unset MAKEFLAGS MFLAGS MAKELEVEL DESTDIR

[ "$(wc -l < "$srcdir/examples/train_own.c")" -le 120 ] || fail "train_own.c has more than 120 lines"
[ "$(wc -l < "$srcdir/examples/train_all.c")" -le 160 ] || fail "train_all.c has more than 160 lines"
[ "$(wc -l < "$srcdir/examples/train_modules.c")" -le 160 ] || fail "train_modules.c has more than 160 lines"
[ "$(wc -l < "$srcdir/examples/train_llama.c")" -le 150 ] || fail "train_llama.c has more than 150 lines"
[ "$(wc -l < "$srcdir/examples/train_tape.c")" -le 150 ] || fail "train_tape.c has more than 150 lines"
grep -E '#[ ]*include ["<](models|base|runtime|backends|collectives|kernels)/' "$srcdir"/examples/*.c &&
	fail "an example uses more than the public headers"

rm -rf "$dest"
mkdir -p "$dest" || exit 1
${MAKE:-make} -s install prefix="$dest/first" > "$dest/install.out" 2>&1 ||
	{ cat "$dest/install.out"; fail "make install prefix=DIR"; }
prefix=$dest/moved
pc=$(find "$dest/first" -name shardrt.pc)
[ -f "$pc" ] || fail "shardrt.pc was not installed"
grep -qx "prefix=$dest/first" "$pc" || { cat "$pc"; fail "shardrt.pc has another prefix than make install"; }
mv "$dest/first" "$prefix" || exit 1
pc=$(find "$prefix" -name shardrt.pc)
libdir=$(dirname "$(find "$prefix" -name 'libshardrt.so' -o -name libshardrt.a | sed 1q)")
bindir=$(dirname "$(find "$prefix" -name shardrun)")
[ -f "$prefix/include/shardrt/shardrt.h" ] && [ -f "$prefix/include/shardrt/models/layers.h" ] || fail "the headers were not installed"
docs=$prefix/share/doc/libshardrt
for name in README.md LICENSE NEWS $(cd "$srcdir" && ls docs/*.md examples/*.[ch] examples/*.cc examples/*.cu); do
	cmp "$srcdir/$name" "$docs/$name" || fail "$name was not installed"
done
for program in shardrun shardrt-ckpt shardrt-generate shardrt-info shardrt-tokens shardrt-train; do
	[ -f "$prefix/share/man/man1/$program.1" ] || fail "the manual page of $program was not installed"
done
for variable in $(env | sed -n 's/^\(SHARDRT_[A-Z_]*\)=.*/\1/p'); do
	[ "$variable" = SHARDRT_CACHE_DIR ] || unset "$variable"
done
unset LD_LIBRARY_PATH

kinds=
# kind NAME SUFFIX VARIABLE: what libtool was configured to make must have been installed
kind()
{
	if [ -e "$libdir/libshardrt.$2" ] && [ -e "$libdir/libshardrt-models.$2" ]; then
		kinds="$kinds $1"
	else
		[ "$(sed -n "s/^$3=//p" libtool | sed 1q)" = no ] || fail "the $1 library was not installed"
		echo "configured with --disable-$1"
	fi
}
kind shared so build_libtool_libs
kind static a build_old_libs
first=${kinds# }
first=${first%% *}

if [ -n "$PKG_CONFIG" ] && [ -x "$PKG_CONFIG" ]; then
	PKG_CONFIG_PATH=$(dirname "$pc")
	export PKG_CONFIG_PATH
	pkg="$PKG_CONFIG --define-variable=prefix=$prefix"
	[ "$($pkg --modversion shardrt)" = "$("$bindir/shardrt-info" --version)" ] ||
		fail "shardrt.pc and shardrt-info differ in the version"
else
	pkg=
fi

# flags PACKAGE: sets shared and static to the flags of a program that uses shardrt or shardrt-models.
flags()
{
	if [ -n "$pkg" ]; then
		shared=$($pkg --cflags --libs "$1") || fail "pkg-config does not know $1"
		static=$($pkg --static --cflags --libs "$1") || fail "pkg-config --static $1"
	else
		shared="-I$prefix/include -L$libdir -l$1 -lshardrt"
		static="$shared $(sed -n 's/^Libs.private: *//p' "$pc")"
	fi
	static=$(echo " $static " |
		sed "s: -lshardrt-models : $libdir/libshardrt-models.a :; s: -lshardrt : $libdir/libshardrt.a :")
}

# build SOURCE NAME [FLAG]...: as NAME-shared and NAME-static.
build()
{
	source=$1 name=$2
	shift 2
	for kind in $kinds; do
		eval "flags=\$$kind"
		# shellcheck disable=SC2086,SC2154
		$CC -std=c11 -O1 -Wall -Wextra -Werror $SRT_SANITIZE "$source" $flags -Wl,-rpath,"$libdir" -lm "$@" \
			-o "$dest/$name-$kind" || fail "$kind build of $source"
	done
	[ ! -e "$dest/$name-shared" ] || ldd "$dest/$name-shared" | grep -q "libshardrt.so.*$libdir" ||
		fail "not linked to the installed library"
	[ ! -e "$dest/$name-static" ] || ! ldd "$dest/$name-static" | grep -q libshardrt ||
		fail "the static build needs the shared library"
}

# run EXAMPLE KIND [ARGUMENT]: prints what it prints; train_all begins without a file, grpo takes one step.
run()
{
	rm -f "$dest/model"
	case $1 in
	grpo) set -- "$1" "$2" 1 1 ;;
	*) set -- "$1" "$2" "${3:-$dest/model}" ;;
	esac
	program=$dest/$1-$2
	shift 2
	"$bindir/shardrun" -n 2 "$program" "$@" 2> "$dest/err" || { cat "$dest/err"; return 1; }
}

for example in $examples; do
	case $example in
	grpo | train_llama | train_tape) flags shardrt-models ;;
	*) flags shardrt ;;
	esac
	build "$srcdir/examples/$example.c" $example
	for kind in $kinds; do
		run $example $kind > "$dest/$example-$kind.out" ||
			{ cat "$dest/$example-$kind.out"; fail "the $kind build of $example on two ranks"; }
		[ -s "$dest/$example-$kind.out" ] || fail "the $kind build of $example printed nothing"
		cmp "$dest/$example-$first.out" "$dest/$example-$kind.out" ||
			fail "shared and static build of $example print different results"
	done
	cat "$dest/$example-$first.out"
done
flags shardrt

# The same by CMake, which finds the moved tree and refuses another minor version.
if command -v cmake > /dev/null; then
	mkdir "$dest/cmake" && cat > "$dest/cmake/CMakeLists.txt" << EOF || exit 1
cmake_minimum_required(VERSION 3.16)
project(example C)
find_package(shardrt \${WANTED} REQUIRED)
add_executable(train_own-cmake $(cd "$srcdir" && pwd)/examples/train_own.c)
target_link_libraries(train_own-cmake shardrt::shardrt m)
add_executable(train_tape-cmake $(cd "$srcdir" && pwd)/examples/train_tape.c)
target_link_libraries(train_tape-cmake shardrt::models)
set_target_properties(train_own-cmake train_tape-cmake PROPERTIES C_STANDARD 11 RUNTIME_OUTPUT_DIRECTORY $dest)
EOF
	configure_cmake()
	{
		cmake -S "$dest/cmake" -B "$dest/cmake/$1" -DWANTED="$1" -DCMAKE_PREFIX_PATH="$prefix" \
			-DCMAKE_C_COMPILER="${CC%% *}" -DCMAKE_C_FLAGS="$SRT_SANITIZE" > "$dest/cmake.out" 2>&1
	}
	configure_cmake 0.1 && cmake --build "$dest/cmake/0.1" >> "$dest/cmake.out" 2>&1 ||
		{ cat "$dest/cmake.out"; fail "a program by find_package(shardrt)"; }
	for example in train_own train_tape; do
		run $example cmake > "$dest/cmake.out" && cmp "$dest/$example-$first.out" "$dest/cmake.out" ||
			fail "the build of $example by CMake prints different results"
	done
	configure_cmake 0.2 && fail "CMake takes this version for 0.2"
	grep -q "version: 0.1" "$dest/cmake.out" || { cat "$dest/cmake.out"; fail "CMake does not name the version that it found"; }
else
	echo "not tested: find_package(shardrt): cmake is not installed"
fi

# finds BACKEND FOLDER COMMAND...: a shardrt-info that lists the backend's module in that folder
finds()
{
	backend=$1 folder=$2
	shift 2
	"$@" > "$dest/info.out" || fail "$*"
	grep -q "$backend: .*(module $folder/shardrt_backend_$backend.so)" "$dest/info.out" ||
		{ cat "$dest/info.out"; fail "$*: does not find the $backend module in $folder"; }
}

# Programs find the modules of the tree that they are in; so does one of a build tree.
pkglibdir=$libdir/libshardrt
if grep -q '^#define HAVE_OPENCL 1' config.h; then
	finds opencl "$pkglibdir" "$bindir/shardrt-info"
	finds opencl "$PWD/.libs" ./shardrt-info
	mkdir "$dest/own" && cp "$pkglibdir/shardrt_backend_opencl.so" "$dest/own" || exit 1
	finds opencl "$dest/own" env SHARDRT_MODULE_PATH="$dest/own" "$bindir/shardrt-info"
fi
if grep -q '^#define HAVE_CUDA 1' config.h; then
	finds cuda "$pkglibdir" env SHARDRT_CUDA_DRIVER=/nonexistent "$bindir/shardrt-info"
fi
"$bindir/shardrt-info" | grep -q '^ *opencl: [1-9][0-9]* device' && for example in $examples; do
	case $SRT_TEST_LONG.$example in .grpo | .train_llama) continue ;; esac # test_grpo.sh, test_hash_decoders.sh
	for kind in $kinds; do
		SHARDRT_BACKEND=opencl run $example $kind > "$dest/opencl.out" ||
			{ cat "$dest/opencl.out"; fail "the $kind build of $example on opencl"; }
		cmp "$dest/$example-$kind.out" "$dest/opencl.out" ||
			fail "the $kind build of $example prints other results on opencl"
	done
done

# of_make VARIABLE: its value, as configured
of_make() { sed -n "s/^$1 = *//p" Makefile; }

# compares EXAMPLE [ARGUMENT]: it trains with kernels of the program and with the library's operation, and compares the bits
compares()
{
	for kind in $kinds; do
		run "$1" $kind "$2" > "$dest/kernel.out" ||
			{ cat "$dest/kernel.out"; fail "the $kind build of $1 on two ranks"; }
		[ "$(grep -c '^loss ' "$dest/kernel.out")" = 2 ] || { cat "$dest/kernel.out"; fail "$1 printed something else"; }
	done
	cat "$dest/kernel.out"
}

if "$bindir/shardrt-info" | grep -q '^ *opencl: [1-9][0-9]* device'; then
	# shellcheck disable=SC2046
	build "$srcdir/examples/opencl_kernel.c" opencl_kernel $(of_make SRT_OPENCL_CFLAGS) $(of_make SRT_OPENCL_LIBS)
	compares opencl_kernel
fi
# The fake driver runs the text of the kernels, which it has compiled in; it reads no more than the head of the file.
# In numerics mode exact, the backend does not load the toolkit's cuBLASLt, which cannot work with the fake driver.
fake=$PWD/tests/fakes/fake_cuda/.libs/libfake_cuda.so
toolkit=$(dirname "$(dirname "$(command -v "$(of_make NVCC)" || echo /none/none)")")
stubs=$(find "$toolkit"/lib64/stubs/ -name libcuda.so 2> /dev/null | sed 1q)
if grep -q '^#define HAVE_CUDA 1' config.h && [ -e "$fake" ] && [ -n "$stubs" ]; then
	$(of_make NVCC) -fatbin -arch=sm_90 "$srcdir/examples/cuda_relu.cu" -o "$dest/relu.fatbin" || fail "nvcc of cuda_relu.cu"
	mkdir "$dest/driver" && ln -s "$fake" "$dest/driver/libcuda.so.1" || exit 1
	# shellcheck disable=SC2046
	build "$srcdir/examples/cuda_kernel.c" cuda_kernel $(of_make SRT_CUDA_CFLAGS) -L"${stubs%/*}" -lcuda
	LD_LIBRARY_PATH=$dest/driver SHARDRT_NUMERICS=exact SHARDRT_CUDA_TUNED=portable
	export LD_LIBRARY_PATH SHARDRT_NUMERICS SHARDRT_CUDA_TUNED
	compares cuda_kernel "$dest/relu.fatbin"
	unset LD_LIBRARY_PATH SHARDRT_NUMERICS SHARDRT_CUDA_TUNED
fi

# A program that has the library in itself loads modules, too: what they need of the library comes in a table.
cat > "$dest/module.c" <<'END'
#include <shardrt/ops.h>
#include <shardrt/shardrt.h>
#include <stdio.h>
#define TRY(call) if ((call) != SRT_OK) return fprintf(stderr, "%s\n", srt_error_last()), 1
int main(void) /* 3 + 4 on the toy device, see docs/porting.md */
{
	srt_context_options_t options = { .size = sizeof(options), .backend = "toy" };
	srt_context_t *context;
	srt_stream_t *stream;
	srt_buffer_t *b;
	float sum = 0;

	TRY(srt_context_create(&options, &context));
	TRY(srt_stream_create(srt_context_device(context), 0, "s", &stream));
	TRY(srt_buffer_create(srt_context_device(context), SRT_MEM_DEVICE, 3 * sizeof(float), "b", &b));
	TRY(srt_op_fill(srt_view(b, 0, SRT_F32), 3.0f, 1, stream));
	TRY(srt_op_fill(srt_view(b, 4, SRT_F32), 4.0f, 1, stream));
	TRY(srt_op_add(srt_view(b, 8, SRT_F32), srt_view(b, 0, SRT_F32), srt_view(b, 4, SRT_F32), 1, stream));
	TRY(srt_buffer_copy_to_host(&sum, b, 8, sizeof(sum), stream));
	printf("%g\n", (double)sum);
	srt_buffer_destroy(b);
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return 0;
}
END
build "$dest/module.c" module
for kind in $kinds; do
	[ -e tests/fakes/backend_toy/.libs ] || break # --disable-shared
	sum=$(SHARDRT_MODULE_PATH=tests/fakes/backend_toy/.libs "$dest/module-$kind") || fail "the $kind build with a module"
	[ "$sum" = 7 ] || fail "3 + 4 = $sum on the toy device, in the $kind build"
done

# The program in the README is one that works, too: its loss ends near 0.
awk '/^```c$/ { p = 1; next } /^```$/ { p = 0 } p' "$srcdir/README.md" > "$dest/readme.c"
build "$dest/readme.c" readme
run readme "$first" > "$dest/readme.out" || fail "the README's program on two ranks"
awk '{ n++; if ($NF > 1e-6) bad = 1 } END { exit n != 2 || bad }' "$dest/readme.out" ||
	{ cat "$dest/readme.out"; fail "the README's program did not fit"; }
# The C++ of docs/embedding.md: two ranks join twice, the first time to see an exception. examples/autograd.cc has the same
# losses without an engine, on one rank and on two; a rank that throws ends the job with its sentence.
for c in "$CXX" g++ clang++ c++; do
	[ -n "$c" ] && command -v "$c" > /dev/null && cxx=$c && break
done
if [ -n "$cxx" ]; then
	eval "flags=\$$first"
	for source in tests/tools/embedding.cc examples/autograd.cc; do
		name=${source##*/}
		# shellcheck disable=SC2086
		$cxx -std=c++17 -Wall -Werror $SRT_SANITIZE "$srcdir/$source" $flags -Wl,-rpath,"$libdir" \
			-o "$dest/${name%.cc}" || fail "the C++ build of $source"
	done
	"$bindir/shardrun" -n 2 "$dest/embedding" > "$dest/embedding.out" || fail "the C++ program on two ranks"
	[ "$(grep -c 'option lr ' "$dest/embedding.out") $(grep -c 'norm 16$' "$dest/embedding.out")" = "2 2" ] ||
		{ cat "$dest/embedding.out"; fail "the C++ program printed something else"; }
	"$dest/autograd" plain > "$dest/plain.out" && [ "$(grep -c . "$dest/plain.out")" = 5 ] || fail "autograd plain"
	for n in 1 2; do
		"$bindir/shardrun" -n $n "$dest/autograd" zero3 > "$dest/autograd.out" || fail "autograd on $n ranks"
		diff "$dest/plain.out" "$dest/autograd.out" || fail "autograd on $n ranks has other losses"
	done
	cat "$dest/plain.out"
	if THROW=5 "$bindir/shardrun" --keep-going -n 2 "$dest/autograd" zero3 > "$dest/throw.out" 2>&1 ||
		! grep -qx 'rank 1 has had enough' "$dest/throw.out" ||
		! grep -q '^rank 0: .*rank 1 aborted communicator "world": rank 1 has had enough' "$dest/throw.out"; then
		cat "$dest/throw.out"
		fail "a rank that throws does not end the job with its sentence"
	fi
fi
rm -rf "$dest"
