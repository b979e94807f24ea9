#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Each public header compiles alone, as C11 and as C++17 (shardrt.hpp as C++17), without any warning. A struct that begins with its size has an
# initialiser.
top=$(cd "$srcdir" && pwd)
failed=0
cxx=
for c in "$CXX" g++ clang++ c++; do
	[ -n "$c" ] && command -v "$c" > /dev/null && cxx=$c && break
done

# flags DRIVER HEADER: the flags that find a driver's header; fails without the header
flags()
{
	found=$(sed -n "s/^SRT_$1_CFLAGS = *//p" Makefile)
	printf '#include <%s>\n' "$2" > headers.tmp.flags.c
	# shellcheck disable=SC2086
	${CC:-cc} -DCL_TARGET_OPENCL_VERSION=120 $found -c headers.tmp.flags.c -o headers.tmp.o 2> /dev/null
	status=$?
	rm -f headers.tmp.flags.c headers.tmp.o
	echo "$found"
	return $status
}

# compile LANGUAGE COMPILER FLAGS...
compile()
{
	suffix=$1
	shift
	for header in $headers; do
		name=${header#"$top"/include/shardrt/}
		case $name in
		opencl.h) drivers=$(flags OPENCL CL/cl.h) || continue ;;
		cuda.h) drivers=$(flags CUDA cuda.h) || continue ;;
		*) drivers= ;;
		esac
		printf '#include <shardrt/%s>\n#include <shardrt/%s>\ntypedef int unit_is_not_empty;\n' \
			"$name" "$name" > headers.tmp.$suffix
		# shellcheck disable=SC2086
		"$@" -Wall -Wextra -Wpedantic -Werror -I"$top/include" $drivers -c headers.tmp.$suffix \
			-o headers.tmp.o || { echo "$name: not clean for $*"; failed=1; }
	done
	rm -f headers.tmp.$suffix headers.tmp.o
}

headers=$(ls "$top"/include/shardrt/*.h "$top"/include/shardrt/models/*.h)
# shellcheck disable=SC2086
compile c ${CC:-cc} -std=c11 -Wstrict-prototypes
if [ -n "$cxx" ]; then
	headers="$headers $top/include/shardrt/shardrt.hpp"
	compile cc $cxx -std=c++17
	# A status that is ignored is a warning.
	for call in '(void)srt_stream_sync(nullptr)' 'srt_stream_sync(nullptr)'; do
		printf '#include <shardrt/shardrt.hpp>\nint main() { %s; }\n' "$call" > headers.tmp.cc
		$cxx -std=c++17 -Werror=unused-result -I"$top/include" -c headers.tmp.cc -o headers.tmp.o 2> /dev/null
		echo "$? $call"
	done > headers.tmp.ignored
	grep -q '^0 (void)' headers.tmp.ignored && grep -q '^1 srt' headers.tmp.ignored ||
		{ echo "exit statuses of $cxx where a status is ignored:"; cat headers.tmp.ignored; failed=1; }
	rm -f headers.tmp.*
fi
# Structs that cannot grow: elements of tables and of device memory, and what the library returns by address.
fixed="srt_init_t srt_offload_t srt_part_t srt_placement_t srt_file_metadata_t srt_coll_segment_t srt_coll_owner_t srt_coll_message_t srt_config_entry_t srt_view_t
srt_file_entry_t srt_shard_location_t srt_shard_t
srt_file_box_t srt_scaler_state_t srt_strided_t srt_vocab_part_t srt_coo_t"
for type in $(awk '/^typedef struct .*\{$/ { open = 1; found = 0 } /^\tsize_t size;/ { found = 1 }
	/^}/ { if (open && !found) { sub(/;/, "", $2); print $2 } open = 0 }' "$top"/include/shardrt/*.h); do
	case " $(echo $fixed) " in
	*" $type "*) ;;
	*) echo "$type has no size, and $0 does not list it as fixed"; failed=1 ;;
	esac
done
for type in $(awk '/^\tsize_t size;/ { found = 1 } /^}/ { if (found) { sub(/;/, "", $2); print $2 } found = 0 }' \
	"$top"/include/shardrt/*.h); do
	[ "$type" != srt_file_source_t ] || continue # the library makes it
	init=$(echo "$type" | sed 's/_t$/_INIT/' | tr a-z A-Z)
	grep -q "#define $init\b" "$top"/include/shardrt/*.h || { echo "$type has no $init"; failed=1; }
done
[ $failed = 0 ] || exit 1
[ -n "$cxx" ] || { echo "SKIP: headers are clean in C11; no C++ compiler for C++17"; exit 77; }
