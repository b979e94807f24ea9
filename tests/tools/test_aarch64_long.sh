#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The library and its tests, compiled for aarch64, and the test programs under qemu-user: the digests of all kernels must
# be those of x86. Needs the Debian packages gcc-aarch64-linux-gnu and qemu-user. Tests of several ranks are left out:
# qemu-user cannot start a program from an emulated one.
skip() { echo "SKIP: $*"; exit 77; }
host=aarch64-linux-gnu
command -v $host-gcc > /dev/null || skip "no $host-gcc"
command -v qemu-aarch64 > /dev/null || skip "no qemu-aarch64"
dir=$PWD/tests/aarch64.tmp
configure=$(cd "$srcdir" && pwd)/configure
[ ! -f "$srcdir/config.status" ] || skip "the source folder is configured: configure in another folder"
unset CC CFLAGS LDFLAGS MAKEFLAGS MFLAGS MAKELEVEL
rm -rf "$dir"
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir" && cd "$dir" || exit 1
SHARDRT_TEST_BACKENDS=cpu
export SHARDRT_TEST_BACKENDS
"$configure" --host=$host PKG_CONFIG=/nonexistent --without-hwloc --without-jansson --without-xxhash --without-pcre2 --without-utf8proc \
	--without-onednn --without-opencl --without-cuda --disable-shared &&
	make -j "$(nproc)" && make -k -j "$(nproc)" check-emulated EMULATOR="qemu-aarch64 -L /usr/$host"
