#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Runs each fuzz target on its corpus. With configure --enable-fuzz libFuzzer then makes more inputs from it: the same
# ones in each run, or with the argument "long" others for a minute. An input that fails is kept as
# tests/fuzz/crash-... in the build folder. When its defect is mended, it belongs in the corpus. An input fails, too, if
# its parser asks for much memory at once, or keeps much, or does not end: inputs are small.
runs=25000
limits="-malloc_limit_mb=64 -rss_limit_mb=1024 -timeout=$((3 * ${SRT_PATIENCE:-10}))"
failed=0
long=${1-}
[ -z "$long" ] || [ -n "$SRT_FUZZ" ] || { echo "SKIP: built without configure --enable-fuzz" && exit 77; }
tmp=$PWD/tests/fuzz/tmp
trap 'rm -rf "$tmp"' EXIT

# run TARGET CORPUS: prints the log.
run()
{
	if [ -z "$SRT_FUZZ" ]; then
		tests/fuzz/fuzz_"$1" "$2"
	elif [ -z "$long" ]; then
		tests/fuzz/fuzz_"$1" $limits -seed=1 -runs=$runs -artifact_prefix=tests/fuzz/ "$tmp/new" "$2"
	else
		tests/fuzz/fuzz_"$1" $limits -max_total_time=60 -artifact_prefix=tests/fuzz/ "$tmp/new" "$2"
	fi 2>&1
}

for target in config family flight frame index lora manifest safetensors sft sizes tokenizer tokens; do
	case $target in
	family | flight | lora | manifest | sft | tokenizer) [ -x tests/fuzz/fuzz_$target ] || continue ;; # without jansson or libxxhash
	esac
	rm -rf "$tmp" && mkdir -p "$tmp/new" || exit 1
	run $target "$srcdir/tests/fuzz/corpus/$target" > "$tmp/log" || { cat "$tmp/log" && failed=1; }
	ninputs=$(sed -n 's/^Done \([0-9]*\) runs .*/\1 inputs/p; s/^\([0-9]* inputs\), from.*/\1/p' "$tmp/log")
	[ -n "$ninputs" ] || failed=1
	echo "$target: ${ninputs:-FAIL}"
done
exit $failed
