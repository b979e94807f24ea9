#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Intel's OpenCL runtime for CPUs, whose compiler is not PoCL's: every kernel has the digests of the repository,
# and jobs on it, alone and with ranks on the CPU backend and on the system's driver, have the CPU's hash.
# Without SRT_TEST_INTEL_OPENCL, the folder of its libraries, it is skipped. To install it:
#
#     python3 -m venv DIR && DIR/bin/pip install intel-opencl-rt intel-cmplr-lib-rt
#     export SRT_TEST_INTEL_OPENCL=DIR/lib
. "$srcdir/tests/harness/run_ranks.sh"
grep -q '^#define HAVE_OPENCL 1' config.h || skip "built without OpenCL"
[ -n "$SRT_TEST_INTEL_OPENCL" ] || skip "SRT_TEST_INTEL_OPENCL does not name Intel's OpenCL runtime"
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
failed=0
fail()
{
	echo "FAIL: $*"
	failed=1
}

# Its own loader and its libhwloc would replace those that the programs were linked with.
mkdir "$dir/lib" "$dir/icd" "$dir/cache"
for file in "$SRT_TEST_INTEL_OPENCL"/*; do
	case ${file##*/} in
	libOpenCL* | libhwloc*) ;;
	*) ln -s "$file" "$dir/lib" ;;
	esac
done
[ -e "$dir/lib/libintelocl.so" ] || { fail "no libintelocl.so in $SRT_TEST_INTEL_OPENCL" && exit 1; }
missing=$(LD_LIBRARY_PATH=$dir/lib ldd "$dir/lib/libintelocl.so" | sed -n 's/ => not found$//p' | sort -u | xargs)
[ -z "$missing" ] || { fail "libintelocl.so needs libraries that are not there: $missing" && exit 1; }
echo "$dir/lib/libintelocl.so" > "$dir/icd/intel.icd"
cat > "$dir/intel" <<END
#!/bin/sh
LD_LIBRARY_PATH=$dir/lib\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH} OCL_ICD_VENDORS=$dir/icd SHARDRT_CACHE_DIR=$dir/cache \\
	SHARDRT_BACKEND=opencl exec "\$@"
END
# Rank 0 on the CPU backend, rank 1 on the system's OpenCL driver, the others on Intel's.
cat > "$dir/mixed" <<END
#!/bin/sh
case \$SHARDRT_RANK in
0) SHARDRT_BACKEND=cpu exec "\$@" ;;
1) SHARDRT_BACKEND=opencl exec "\$@" ;;
*) exec "$dir/intel" "\$@" ;;
esac
END
chmod +x "$dir/intel" "$dir/mixed"
unset SHARDRT_DEVICE
"$dir/intel" ./shardrt-info | grep -A 1 '^    opencl: 1 device' || fail "shardrt-info does not list one device"
SRT_TEST_LONG= "$dir/intel" tests/kernels/test_conformance > "$dir/out" 2>&1 ||
	fail "conformance: $(tail -n 20 "$dir/out")"
echo "conformance: $(grep -c ' sizes x ' "$dir/out") rows of kernels"

# hash_of COMMAND...: of a short training on 3 ranks
hash_of()
{
	./shardrun -n 3 "$@" ./shardrt-train --text "$srcdir/README.md" --preset nano --batch 6 --steps 10 \
		--numerics exact --eval-every 0 --hash 2> "$dir/err" | tail -n 1
	[ ! -s "$dir/err" ] || cat "$dir/err" >&2
}
expected=$(hash_of env SHARDRT_BACKEND=cpu)
case $expected in
*[0-9a-f][0-9a-f][0-9a-f][0-9a-f]*) ;;
*) fail "no hash on the CPU: $expected" ;;
esac
for job in intel mixed; do
	got=$(hash_of "$dir/$job")
	echo "$job: $got"
	[ "$got" = "$expected" ] || fail "$job: \"$got\" instead of \"$expected\""
done
exit $failed
