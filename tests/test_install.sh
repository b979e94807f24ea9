#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# `make install` into a folder of its own, and examples/train_own.c built against what was installed: with
# the flags of shardrt.pc where pkg-config is there, shared and static, run on two ranks by the installed
# launcher. Both builds must print the same. Then the program that stands in the README.
skip() { echo "SKIP: $*"; exit 77; }
fail() { echo "FAIL: $*"; exit 1; }
example=$srcdir/examples/train_own.c
dest=$PWD/tests/install.tmp
unset MAKEFLAGS MFLAGS MAKELEVEL DESTDIR

[ "$(wc -l < "$example")" -le 120 ] || fail "$example has more than 120 lines"
grep -E '#[ ]*include ["<](models|base|runtime|backends|collectives|kernels)/' "$example" &&
	fail "$example uses more than the public headers"

rm -rf "$dest"
${MAKE:-make} -s install DESTDIR="$dest" > tests/install.out 2>&1 ||
	{ cat tests/install.out; fail "make install"; }
rm -f tests/install.out
pc=$(find "$dest" -name shardrt.pc)
[ -f "$pc" ] || fail "shardrt.pc was not installed"
prefix=$dest$(sed -n 's/^prefix=//p' "$pc")
libdir=$(dirname "$(find "$dest" -name libshardrt.a)")
bindir=$(dirname "$(find "$dest" -name shardrun)")
[ -f "$prefix/include/shardrt/shardrt.h" ] || fail "the headers were not installed"
[ -e "$libdir/libshardrt.so" ] || fail "the shared library was not installed"

LD_LIBRARY_PATH=$libdir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH

if [ -n "$PKG_CONFIG" ] && [ -x "$PKG_CONFIG" ]; then
	# As if it had been configured for this folder.
	sed -i "s:^prefix=.*:prefix=$prefix:" "$pc"
	PKG_CONFIG_PATH=$(dirname "$pc")
	export PKG_CONFIG_PATH
	pkg=$PKG_CONFIG
	shared=$($pkg --cflags --libs shardrt) || fail "pkg-config does not know shardrt"
	static=$($pkg --static --cflags --libs shardrt) || fail "pkg-config --static"
	[ "$($pkg --modversion shardrt)" = "$("$bindir/shardrt-info" --version)" ] ||
		fail "shardrt.pc and shardrt-info differ in the version"
else
	shared="-I$prefix/include -L$libdir -lshardrt"
	static="$shared $(sed -n 's/^Libs.private: *//p' "$pc")"
fi
static=$(echo " $static" | sed "s: -lshardrt: $libdir/libshardrt.a:")

# shellcheck disable=SC2086
{
	$CC -std=c11 -O1 $SRT_SANITIZE "$example" $shared -lm -o "$dest/shared" || fail "shared build"
	$CC -std=c11 -O1 $SRT_SANITIZE "$example" $static -lm -o "$dest/static" || fail "static build"
}
ldd "$dest/shared" | grep -q "libshardrt.so.*$libdir" || fail "not linked to the installed library"
ldd "$dest/static" | grep -q libshardrt && fail "the static build needs the shared library"
for kind in shared static; do
	"$bindir/shardrun" -n 2 "$dest/$kind" > "$dest/$kind.out" 2> "$dest/$kind.err" ||
		{ cat "$dest/$kind.out" "$dest/$kind.err"; fail "the $kind build on two ranks"; }
	[ -s "$dest/$kind.out" ] || fail "the $kind build printed nothing"
done
cmp "$dest/shared.out" "$dest/static.out" || fail "shared and static build print different results"
cat "$dest/shared.out"

# The program in the README is one that works, too: its loss ends near 0.
awk '/^```c$/ { p = 1; next } /^```$/ { p = 0 } p' "$srcdir/README.md" > "$dest/readme.c"
# shellcheck disable=SC2086
$CC -std=c11 $SRT_SANITIZE "$dest/readme.c" $shared -o "$dest/readme" || fail "the README's program"
"$bindir/shardrun" -n 2 "$dest/readme" > "$dest/readme.out" || fail "the README's program on two ranks"
awk '{ n++; if ($NF > 1e-6) bad = 1 } END { exit n != 2 || bad }' "$dest/readme.out" ||
	{ cat "$dest/readme.out"; fail "the README's program did not fit"; }
rm -rf "$dest"
