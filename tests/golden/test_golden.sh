#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Replays all recorded cases on the library, each at its world size, in each form of the backend, and some of them on
# other meshes.
# The folder of cases is not part of the sources: configure looks for it in ../shared/golden (--with-golden).
# First, on the cpu, it injects faults into copies of a case, which must fail, and unknown features, which must
# be skipped.
#
#     test_golden.sh               all of this
#     test_golden.sh staged-FORM   in this form, collectives through host memory, the cases of several
#                                  ranks alone (tools/gpu-check/gpu-check)
#
# Parity: 000 TestFullyShardGradientScaler.test_gradient_scaler | 1 to 4, 2 x 2 | all | passes
# Parity: 001 TestPureFP16.test_pure_fp16_training, `cpu_offload` False | 2, 4 | all | passes
# Parity: 001 TestPureFP16.test_pure_fp16_training, `cpu_offload` True | 2, 4 | all | passes
# Parity: 001 TestPureFP16.test_fp16_dtypes | 2 | all | same meaning: the table of the rules; an engine has no `half()`,
# its dtypes are chosen before it is built
# Parity: 002 TestShardedOptimizer.test_sharded_optim | 1, 4 | all | passes
# Parity: 003 TestShardGradScaler.test_grad_scaling | 1 | all | same meaning: a list of tensors, whose container is the
# program's
# Parity: 003 TestShardGradScaler.test_scaling_unscaling_sparse | 1 | all | passes
# Parity: 004 TestFSDPWithMetaDevice.test_simple_model_with_meta_device_default_init | 1, 2 | all | passes
# Parity: 004 TestFSDPWithMetaDevice.test_simple_model_with_meta_device_reset_params | 1, 2 | all | passes
# Parity: 004 TestFSDPWithMetaDevice.test_nested_model_with_meta_device_default_init | 1, 2 | all | passes
# Parity: 004 TestFSDPWithMetaDevice.test_nested_model_with_meta_device_reset_params | 1, 2 | all | passes
# Parity: 004 TestFSDPWithMetaDevice.test_meta_device_with_mixed_precision | 1 | all | passes
# Parity: 004 TestFSDPWithMetaDevice.test_bad_arg_meta | 1 | all | same meaning: the compiler checks the type of a
# function, and NULL is refused
# Parity: 004 TestFSDPWithMetaDevice.test_bad_arg_torchdistx | 1 | all | same meaning: the compiler checks the type of a
# function, and NULL is refused
. "$srcdir/tests/harness/run_ranks.sh"

[ -n "$SRT_GOLDEN_DIR" ] && [ -d "$SRT_GOLDEN_DIR/cases" ] ||
	skip "no recorded cases: configure found none in ../shared/golden (--with-golden=DIR)"
[ -x tests/golden/replay_golden ] || skip "tests/golden/replay_golden needs jansson"
[ -x ./shardrun ] || skip "shardrun was not built"

forms=${1:-$forms}
work=tests/golden/test_golden.${1:-all}.dir
rm -rf $work
mkdir -p $work || exit 1
trap 'rm -rf $work' EXIT

# world CASE: ranks that it is for; a table without them runs on one.
world()
{
	sed -n 's/^ "world_size": *\([0-9]*\).*/\1/p' "$1/case.json" | grep . || echo 1
}

# ---- injected faults: each must turn a case that passes into one that fails
sample=$SRT_GOLDEN_DIR/cases/clip_p2_w2
fails()
{
	status=0
	./shardrun -n "$(world $work/sample)" tests/golden/replay_golden $work/sample > $work/out 2>&1 || status=$?
	chmod -R u+w $work/sample
	rm -rf $work/sample
	[ $status = 1 ] && grep -q '^FAIL' $work/out && return
	echo "FAIL: a case with $1 did not fail (exit status $status):"
	cat $work/out
	exit 1
}
copy()
{
	cp -RL "$sample" $work/sample && chmod -R u+w $work/sample
}
if [ -d "$sample" ] && [ -z "$1" ] && [ "$SHARDRT_BACKEND" = cpu ]; then
	./shardrun -n 2 tests/golden/replay_golden "$sample" > $work/out 2>&1 || {
		echo "FAIL: the case for the injected faults does not pass:"
		cat $work/out
		exit 1
	}
	# the last parameter by less than 1 %
	copy
	size=$(wc -c < $work/sample/expect.safetensors)
	byte=$(od -An -tu1 -j $((size - 3)) -N 1 $work/sample/expect.safetensors | tr -d ' ')
	printf "\\$(printf %03o $((byte ^ 64)))" | dd of=$work/sample/expect.safetensors bs=1 \
		seek=$((size - 3)) conv=notrunc 2> /dev/null
	fails "another parameter"
	copy
	sed '/"loss": \[/s/"hex": "0x1\.[0-9a-f]/"hex": "0x1.0/' "$sample/case.json" > $work/sample/case.json
	fails "other losses"
	copy
	sed '/"grad_norm"/s/"hex": "0x1\.[0-9a-f]*/"hex": "0x1.0/' "$sample/case.json" \
		> $work/sample/case.json
	fails "another gradient norm"
	copy
	sed '/"offset"/s/"offset": \[[0-9]*/"offset": [1/' "$sample/case.json" > $work/sample/case.json
	fails "other shards"
	copy
	sed 's/"grad_none": \[\]/"grad_none": ["0.bias"]/' "$sample/case.json" > $work/sample/case.json
	fails "a gradient that should be missing"

	# fault CASE SED WHAT: what precision, scalers and buffers are compared by
	fault()
	{
		[ -d "$SRT_GOLDEN_DIR/cases/$1" ] || return 0
		cp -RL "$SRT_GOLDEN_DIR/cases/$1" $work/sample && chmod -R u+w $work/sample
		sed "$2" "$SRT_GOLDEN_DIR/cases/$1/case.json" > $work/sample/case.json
		fails "$3"
	}
	fault probe_accum4_last_bf16_f32_w2 's/"reduce_dtype": "f32"/"reduce_dtype": "bf16"/' \
		"sums in another dtype"
	fault probe_accum4_last_fsdp1_f16_f32_w2 's/"reference": "fsdp1"/"reference": "fsdp2"/' \
		"the rule of another wrapper"
	scaled=scaler_accum3_every_f16_f32_w2
	fault $scaled '/"scale_after"/s/"hex": "0x1\.0*p+[0-9]*"/"hex": "0x1p+3"/' "another scale"
	fault $scaled 's/"growth_tracker_after": 1/"growth_tracker_after": 0/' "another growth tracker"
	fault $scaled 's/"found_inf": {[^}]*}/"found_inf": {"dtype": "f32", "hex": "0x1p+0"}/' \
		"other findings"
	fault $scaled '/"ranks": *\[1\]/s//"ranks": [0]/' "an infinity on another rank"
	fault $scaled 's/"output_dtype": "f16"/"output_dtype": "f32"/' "another output dtype"
	fault init_distributions 's/0x1\.6a09e667f3bccp-2/0x1.6a09e667fp-2/' "another bound of a distribution"
	fault init_distributions 's/"zero_row": 1/"zero_row": 2/' "another row of zeros"
	fault batchnorm_ddp_broadcast_w2 's/"broadcast_buffers": true/"broadcast_buffers": false/' \
		"buffers that are not broadcast"
	fault fsdp1_flat_shards_w3 's/"offset_in_shard": 12/"offset_in_shard": 11/' \
		"flat parameters without alignment"
	fault meta_init_order 's/"reset_order": \["lin1", "lin2"/"reset_order": ["lin2", "lin1"/' "another order"
	fault meta_init_nested_fsdp1_w2 's/"module": "l3"/"module": "l3.lin1"/' "other units"
	fault state_adam_w2 's/"resume_at": 3/"resume_at": 2/' "a state that was not recorded"
	fault sharded_optimizer_w4_uneven1 's/"offsets": \[9, 0\]/"offsets": [8, 0]/' "other shards"
	fault sharded_optimizer_w4 's/"lr": 0.1/"lr": 0.11/' "another learning rate"
	fault shard_table_chunk_spec 's/"n": 7, "world": 4, "offsets": \[0, 2/"n": 7, "world": 4, "offsets": [0, 1/' "other chunks"
	fault errors_combined 's/"name": "tp_uneven"/"name": "tp_odd"/' "an unknown row"
	fault errors_combined '/"name": "tp_uneven"/,/outcome/s/"error"/"ok"/' "another outcome"
	fault errors_combined '/"name": "hsdp_inf_one_replica"/,/fact/s/0\.0, 0\.0\]/1.0, 1.0]/' "a fact that is not worse"
	fault errors_combined '/"name": "zero_grad_fsdp1_no_sync"/,/fact/s/: 1"/: 2"/' "another fact"

	# what is ignored would pass: fields that are not known, values that are not supported
	inject()
	{
		copy
		sed "$2" "$sample/case.json" > $work/sample/case.json
		mv $work/sample $work/inject$1
	}
	inject 1 's/^ "accum": /"new_field": null,&/'
	inject 2 's/"bias": true/&, "new_field": 1/'
	inject 3 's/"accum_sync": "every"/"accum_sync": "sometimes", "reshard_after_forward": "2"/'
	inject 4 's/"shape": \[2\], "names": \["dp"\]/"shape": [2, 1], "names": ["shard", "replicate"]/'
	status=0
	./shardrun -n 2 tests/golden/replay_golden $work/inject? > $work/out 2>&1 || status=$?
	cat > $work/skips << 'EOF'
the replay does not know the field new_field
the replay does not know the field model.hyper.new_field
needs resharding of this kind, accum_sync sometimes
needs a mesh of another kind
EOF
	if [ $status != 77 ] || ! sed -n 's/^skip: [^)]*) //p' $work/out | cmp -s - $work/skips; then
		echo "FAIL: cases with injected features were not skipped by name (exit status $status):"
		cat $work/out
		exit 1
	fi
fi

# ---- cases on other meshes than they were recorded on, where the mean of the gradients is the same
#
# derive NAME CASE SHAPE NAMES DATA RANKS INPUTS: for each rank of the mesh the recorded one with its loss, and for
# each data-parallel rank the recorded one with its inputs. The shards of the recorded ranks are left out.
derive()
{
	from=$SRT_GOLDEN_DIR/cases/$2 to=$work/$1
	[ -d "$from" ] || return 0
	mkdir $to && cp "$from"/init.safetensors "$from"/expect.safetensors $to || exit 1
	inputs= i=0
	for k in $7; do
		cp "$from/input.rank$k.safetensors" $to/input.rank$i.safetensors || exit 1
		inputs="$inputs${inputs:+, }\"input.rank$i.safetensors\""
		i=$((i + 1))
	done
	sed -e '/^ "shards": {},$/d; /^ "shards": {$/,/^ },$/d' -e 's/"shards_at": \[[^]]*\]/"shards_at": []/' \
		-e "s/^ \"name\": .*/ \"name\": \"$1\",/; s/^ \"dp_size\": .*/ \"dp_size\": $i,/" \
		-e "s/^ \"world_size\": .*/ \"world_size\": $(echo $6 | wc -w),/" \
		-e "s/^ \"mesh\": .*/ \"mesh\": {\"shape\": [$3], \"names\": [$4]},/" \
		-e "s/^ \"data_index\": .*/ \"data_index\": \"$5\",/" -e "s/\"inputs\": \[\"input[^]]*\]/\"inputs\": [$inputs]/" \
		-e 's/"expect_ranks": \[[^]]*\]/"expect_ranks": []/' "$from/case.json" |
		awk -v ranks="$6" '
			in_ranks && /^   \]/ {
				n = split(ranks, of, " ")
				for (i = 1; i <= n; i++)
					print recorded[of[i]] (i < n ? "," : "")
				in_ranks = 0
			}
			in_ranks { sub(/,$/, ""); recorded[nrecorded++] = $0; next }
			/^   "ranks": \[/ { in_ranks = 1; nrecorded = 0 }
			{ print }' > $to/case.json
	echo $to >> $work/derived
}
: > $work/derived
if [ -z "$1" ]; then
	hybrid='"replicate", "shard"' tensor='"dp", "tp"' dp="mesh coordinate 0 (dp)"
	derive offload_2x3 fsdp2_offload_fp32_w2 "2, 3" "$hybrid" rank "0 1 0 1 0 1" "0 1 0 1 0 1"
	derive tp_1x3 tp_clip_p2_f32_1x2 "1, 3" "$tensor" "$dp" "0 0 0" "0"
fi
if [ -z "$1" ] && [ "$SHARDRT_BACKEND" = cpu ]; then
	derive offload_3x2 fsdp2_offload_fp32_w2 "3, 2" "$hybrid" rank "0 1 0 1 0 1" "0 1 0 1 0 1"
	derive clip_2x3 clip_p2_w2 "2, 3" "$hybrid" rank "0 1 0 1 0 1" "0 1 0 1 0 1"
	derive clip_3x2 clip_p2_w2 "3, 2" "$hybrid" rank "0 1 0 1 0 1" "0 1 0 1 0 1"
	derive clip_w6 clip_p2_w2 6 '"dp"' rank "0 1 0 1 0 1" "0 1 0 1 0 1"
	derive tp_2x3 tp_clip_p2_f32_2x2 "2, 3" "$tensor" "$dp" "0 0 0 2 2 2" "0 1"
	derive tp_3x2 tp_clip_p2_f32_1x2 "3, 2" "$tensor" "$dp" "0 0 0 0 0 0" "0 0 0"
fi

# ---- all cases on the cpu; on other devices, and with SRT_TEST_WORLDS=largest, one of those whose names differ in
# numbers alone (worlds, seeds, bits of a dtype): the others have the same code and, by other tests, the same bits
list_cases()
{
	ls -d "$SRT_GOLDEN_DIR"/cases/* | awk -v few="$few" '
		{
			name = $0
			sub(/.*\//, "", name)
			if (few) gsub(/[0-9]+/, "", name)
			if (!(name in count)) names[++n] = name
			of[name, count[name]++] = $0
		}
		END { for (i = 1; i <= n; i++) print of[names[i], length(names[i]) % count[names[i]]] }'
}
few=yes
case ${SRT_BACKEND_NAME:-$SHARDRT_BACKEND}.$SRT_TEST_LONG.$SRT_TEST_WORLDS in
*..largest) ;;
cpu.* | cuda.* | *.1.*) few= ;;
esac
for case in $(list_cases) $(cat $work/derived); do
	echo "$(world "$case") $case"
done > $work/all
case $forms in
staged-*) grep -v '^1 ' $work/all ;;
*) cat $work/all ;;
esac > $work/cases
failed=0
# The cpu's first form with all strategies, on up to 3 ranks unless the test is long; all else with one of them by turns:
# the same bits.
for form in $forms; do
	use_form $form
	for n in $(cut -d' ' -f1 $work/cases | sort -nu); do
		one=--one status=0
		case $SHARDRT_BACKEND.$form.$n.$SRT_TEST_WORLDS in
		*.largest) ;;
		cpu.inline.[1-3].*) one= ;;
		cpu.inline.*) [ -z "$SRT_TEST_LONG" ] || one= ;;
		esac
		./shardrun -n "$n" tests/golden/replay_golden $one \
			$(sed -n "s/^$n //p" $work/cases) >> $work/$form 2>&1 || status=$?
		case $status in
		0) cell "$n" pass ;;
		77) cell "$n" skip "all cases need features that are not built yet" ;;
		*) cell "$n" fail && failed=1 ;;
		esac
	done
	echo "$form:"
	grep -v '^skip:' $work/$form
done
first=$work/${forms%% *}
echo "skipped (a case may need several features):"
sed -n 's/^skip: [^)]*) //p' $first | sed 's/^needs //; s/, /\n/g' | sort | uniq -c | sort -rn
echo "$(grep -c '^PASS' $first) passed ($(grep -c '^     wider' $first) of them within a wider limit)," \
	"$(grep -c '^FAIL' $first) failed, $(grep -c '^skip' $first) skipped of $(grep -c . $work/cases) cases"
grep -q '^PASS' $first || failed=1
exit $failed
