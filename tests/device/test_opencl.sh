#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The OpenCL backend from the outside and from the inside: no driver and wrong devices are errors that say
# what to do; the second start compiles nothing, damaged and stale entries of the cache are compiled anew,
# a folder that cannot be written costs only time; processes do not share a folder of PoCL's cache.
# Then the programs that are linked with the backend's objects: tests/device/test_opencl, test_opencl_work.
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
SHARDRT_BACKEND=opencl
export SHARDRT_BACKEND
failed=0

bad()
{
	echo "FAIL: $*"
	failed=1
}

[ -e .libs/shardrt_backend_opencl.so ] || { echo "SKIP: built without OpenCL" && exit 77; }

# entries_of NAME: the entries of the cache for the program NAME, one for each form of the lanes, or of the
# self-test. An entry is 32 bytes of header, then the key, which begins with the name.
entries_of()
{
	for file in "$SHARDRT_CACHE_DIR"/opencl/*.bin; do
		[ "$(dd if="$file" bs=1 skip=32 count=${#1} 2> /dev/null)" = "$1" ] && echo "$file"
	done
}

# info [VARIABLE=VALUE...]: opens the device; the debug log is in $tmp/log.
info()
{
	env SHARDRT_LOG=debug "$@" ./shardrt-info > "$tmp/out" 2> "$tmp/log"
}

# tested_info [VARIABLE=VALUE...]: info with the self-test, which has the device load all programs.
tested_info()
{
	# shellcheck disable=SC2046
	rm -f $(entries_of self-test)
	info "$@"
}

# loads_few WHAT: the device has loaded few of the programs that the self-test runs
loads_few()
{
	loaded=$(sed -n "s/.* 0 programs compiled and \([0-9]*\) read.*/\1/p" "$tmp/log")
	[ "${loaded:-$programs}" -lt 3 ] || bad "$1 loads $loaded programs"
}

# has FILE WORDS WHAT
has()
{
	grep -q -e "$2" "$tmp/$1" || bad "$3: no \"$2\" in: $(cat "$tmp/$1")"
}

# ---- no driver: the words are the backend's, also in the list of backends
mkdir "$tmp/empty"
OCL_ICD_VENDORS=$tmp/empty ./shardrun -n 1 ./shardrt-train --text "$srcdir/README.md" --steps 1 \
	> "$tmp/log" 2>&1 && bad "trains without a driver"
has log 'no usable device: the OpenCL loader finds no driver' "no driver"
has log 'OCL_ICD_VENDORS' "no driver"
info OCL_ICD_VENDORS="$tmp/empty" SHARDRT_BACKEND=auto || bad "shardrt-info without a driver"
has out 'opencl: no device: the OpenCL loader finds no driver' "list without a driver"

if ! ./shardrt-info | grep -q '^    opencl: [1-9]'; then
	[ $failed = 0 ] || exit 1
	echo "SKIP: $(./shardrt-info | grep '^    opencl:')"
	exit 77
fi

# ---- a device that is not there
SHARDRT_DEVICE=nonsense ./shardrt-train --text "$srcdir/README.md" --steps 1 > "$tmp/log" 2>&1 &&
	bad "trains on a device that is not there"
has log 'SHARDRT_DEVICE=nonsense.*there are: 0 ".*(0:0, ' "a device that is not there"

# ---- the cache: what is warm from here on stays so in a copy
info SHARDRT_LOG=info && cp -r "$SHARDRT_CACHE_DIR" "$tmp/cache"
rm -f "$tmp"/cache/opencl/*.bin.?????? # which another test is writing
SHARDRT_CACHE_DIR=$tmp/cache
export SHARDRT_CACHE_DIR
tested_info || bad "the device does not open: $(cat "$tmp/log")"
programs=$(sed -n "s/.* \([0-9]*\) programs compiled and \([0-9]*\) read.*/\1 \2/p" "$tmp/log")
# shellcheck disable=SC2086
set -- $programs
programs=$(($1 + $2))
[ $programs -gt 5 ] || bad "only $programs programs: $(cat "$tmp/log")"
tested_info || bad "second start: $(cat "$tmp/log")"
has log " 0 programs compiled and $programs read" "second start"
info || bad "third start: $(cat "$tmp/log")"
has log "the self-test has passed before" "third start"
loads_few "a start without the self-test"
# The pass is of this form of the kernels: another one is tested.
info SHARDRT_OPENCL_TUNED=portable || bad "portable: $(cat "$tmp/log")"
! grep -q "has passed before" "$tmp/log" || bad "another form's pass was taken"

# A start that does not test the kernels says nothing to later ones.
tested_info SHARDRT_SELFTEST=no || bad "no self-test: $(cat "$tmp/log")"
[ -z "$(entries_of self-test)" ] || bad "SHARDRT_SELFTEST=no has kept a pass"
loads_few "SHARDRT_SELFTEST=no"
tested_info || bad "a start that is tested again: $(cat "$tmp/log")"

entries=$(entries_of random)
[ -n "$entries" ] || bad "no entry of \"random\""
mkdir "$tmp/whole"
for file in $entries; do
	cp "$file" "$tmp/whole/"
	dd if="$tmp/whole/${file##*/}" of="$file" bs=20000 count=1 2> /dev/null
done
tested_info || bad "an entry cut off: $(cat "$tmp/log")"
has log "cache: .*cut off: compiling anew" "an entry cut off"
has log " 1 programs compiled and $((programs - 1)) read" "an entry cut off"
tested_info
has log " 0 programs compiled and $programs read" "after an entry cut off"
for file in $entries; do
	printf x | dd of="$file" bs=1 seek=20000 conv=notrunc 2> /dev/null
done
tested_info || bad "a damaged entry: $(cat "$tmp/log")"
has log "cache: .*damaged: compiling anew" "a damaged entry"
has log " 1 programs compiled" "a damaged entry"
# In its place another's, as of another driver.
other=$(find "$tmp/cache/opencl" -name '*.bin' | grep -v "$entries" | head -n 1)
for file in $entries; do
	cp "$other" "$file"
done
tested_info || bad "a stale entry: $(cat "$tmp/log")"
has log "cache: .*compiling anew" "a stale entry"
has log " 1 programs compiled" "a stale entry"
[ -z "$(find "$tmp/cache/opencl" -type f ! -name '*.bin' ! -name .lock)" ] || bad "temporary files stay in the cache"

# A folder that cannot be: only a line of the log. (Its path is a file: root may write to any folder.)
: > "$tmp/file"
info SHARDRT_CACHE_DIR="$tmp/file/x" POCL_CACHE_DIR="$tmp/cache/pocl/0" ||
	bad "no cache: $(cat "$tmp/log")"
has log "nothing is cached: cannot write to folder .*file/x" "no cache"
has log " $programs programs compiled and 0 read" "no cache"

# ---- two processes at a time, two folders; both compute,
# that lack an entry: one compiles it, the other waits and reads it.
rm -rf "$tmp/cache/pocl"
rm $entries
SHARDRT_LOG=debug ./shardrun -n 2 ./shardrt-train --text "$srcdir/README.md" --layers 1 --width 16 --heads 2 \
	--context 16 --batch 2 --steps 1 > "$tmp/log" 2>&1 || bad "two ranks: $(cat "$tmp/log")"
for how in compiled read; do
	[ "$(grep -c "program \"random\" $how" "$tmp/log")" = 1 ] ||
		bad "an entry that two ranks lack: $(grep -e '"random"' "$tmp/log")"
done
[ "$(ls "$tmp/cache/pocl")" = "$(printf '0\n1')" ] || bad "PoCL's folders: $(ls "$tmp/cache/pocl")"
SHARDRT_CACHE_DIR=${PWD}/tests/cache
export SHARDRT_CACHE_DIR

# ---- inside
for program in tests/device/test_opencl tests/device/test_opencl_work; do
	./$program || bad "$program: exit status $?"
done
# Several devices where a variable of PoCL makes them.
status=0
POCL_DEVICES="pthread basic" ./tests/device/test_opencl two || status=$?
[ $status = 0 ] || [ $status = 77 ] || bad "two devices"
exit $failed
