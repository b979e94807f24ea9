#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Replays all recorded cases on the library, each at its world size, in each form of the backend, and some of them on
# other meshes and with other sizes.
# The folder of cases is not part of the sources: configure looks for it in ../shared/golden (--with-golden).
# First, on the cpu, it injects faults into copies of a case, which must fail, and unknown features, which must
# be skipped.
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
# Hundreds of small trainings: streams that are threads take a third more time, and change no bit.
case $SRT_TEST_LONG.$SRT_TEST_WORLDS.$forms in .largest.* | 1.*) ;; *inline) forms=inline ;; esac
use_form ${forms%% *}

[ -n "$SRT_GOLDEN_DIR" ] && [ -d "$SRT_GOLDEN_DIR/cases" ] ||
	skip "no recorded cases: configure found none in ../shared/golden (--with-golden=DIR)"
[ -x tests/golden/replay_golden ] || skip "tests/golden/replay_golden needs jansson"
[ -x ./shardrun ] || skip "shardrun was not built"

work=tests/golden/test_golden.dir
rm -rf $work
mkdir -p $work || exit 1
trap 'rm -rf $work' EXIT

# worlds CASE...: for each case the ranks that it is for, and its name; a table without them runs on one.
worlds()
{
	awk 'BEGIN {
		for (i = 1; i < ARGC; i++) {
			n = 1
			file = ARGV[i] "/case.json"
			while ((getline line < file) > 0)
				if (line ~ /^ "world_size"/) {
					gsub(/[^0-9]/, "", line)
					n = line
					break
				}
			close(file)
			print n, ARGV[i]
		}
	}' "$@"
}
# world CASE: its ranks alone.
world()
{
	worlds "$1" | cut -d' ' -f1
}

# cases PATTERN: the recorded cases of this name, whose end is often the number of ranks.
cases()
{
	for case in "$SRT_GOLDEN_DIR"/cases/$1; do
		[ ! -d "$case" ] || echo "$case"
	done
}
# copy CASE NAME: a case that can be written to.
copy()
{
	cp -RL "$1" $work/$2 && chmod -R u+w $work/$2 || exit 1
}

# ---- injected faults: each must turn a case that passes into one that fails
#
# fault PATTERN SED WHAT: a copy of the first such case that the command changes.
: > $work/faults
fault()
{
	for case in $(cases "$1"); do
		sed "$2" "$case/case.json" > $work/faulty.json
		cmp -s $work/faulty.json "$case/case.json" && continue
		to=fault$(wc -l < $work/faults)
		copy "$case" $to
		mv $work/faulty.json $work/$to/case.json
		echo "$(world $work/$to) $work/$to $3" >> $work/faults
		return
	done
	echo "not injected: $3"
}
sample=$(cases 'clip_p2_w[2-9]' | head -n 1)
if [ -n "$sample" ] && [ "$SHARDRT_BACKEND" = cpu ]; then
	# the last parameter by less than 1 %
	copy "$sample" fault0
	file=$work/fault0/expect.safetensors
	size=$(wc -c < $file)
	byte=$(od -An -tu1 -j $((size - 3)) -N 1 $file | tr -d ' ')
	printf "\\$(printf %03o $((byte ^ 64)))" | dd of=$file bs=1 seek=$((size - 3)) conv=notrunc 2> /dev/null
	echo "$(world "$sample") $work/fault0 another parameter" > $work/faults

	clip='clip_p2_w[2-9]'
	fault "$clip" '/"loss": \[/s/"hex": "0x1\.[0-9a-f]/"hex": "0x1.0/' "other losses"
	fault "$clip" '/"grad_norm"/s/"hex": "0x1\.[0-9a-f]*/"hex": "0x1.0/' "another gradient norm"
	fault "$clip" '/"offset"/s/"offset": \[[0-9]*/"offset": [1/' "other shards"
	fault "$clip" 's/"grad_none": \[\]/"grad_none": ["0.bias"]/' "a gradient that should be missing"

	# what precision, scalers and buffers are compared by
	fault 'probe_accum4_last_bf16_f32_w*' 's/"reduce_dtype": "f32"/"reduce_dtype": "bf16"/' "sums in another dtype"
	fault 'probe_accum4_last_fsdp1_f16_f32_w*' 's/"reference": "fsdp1"/"reference": "fsdp2"/' \
		"the rule of another wrapper"
	scaled='scaler_accum3_every_f16_f32_w*'
	fault "$scaled" '/"scale_after"/s/"hex": "0x1\.0*p+[0-9]*"/"hex": "0x1p+3"/' "another scale"
	fault "$scaled" 's/"growth_tracker_after": 1/"growth_tracker_after": 0/' "another growth tracker"
	fault "$scaled" 's/"found_inf": {[^}]*}/"found_inf": {"dtype": "f32", "hex": "0x1p+0"}/' "other findings"
	fault "$scaled" '/"ranks": *\[1\]/s//"ranks": [0]/' "an infinity on another rank"
	fault "$scaled" 's/"output_dtype": "f16"/"output_dtype": "f32"/' "another output dtype"
	fault init_distributions 's/\("high": {[^}]*"hex": "0x1\.[0-9a-f]\{8\}\)[1-9a-f]/\10/' \
		"another bound of a distribution"
	fault init_distributions 's/"zero_row": \([0-9]\)/"zero_row": 1\1/' "another row of zeros"
	fault 'batchnorm_ddp_broadcast_w*' 's/"broadcast_buffers": true/"broadcast_buffers": false/' \
		"buffers that are not broadcast"
	fault 'fsdp1_flat_shards_w*' 's/"offset_in_shard": \([1-9]\)/"offset_in_shard": 1\1/' \
		"flat parameters at other elements"
	fault meta_init_order 's/"reset_order": \["lin1", "lin2"/"reset_order": ["lin2", "lin1"/' "another order"
	fault meta_init_order 's/"unit_flat_numel": \[\([0-9]*\), \([0-9]*\), \([0-9]*\)\]/"unit_flat_numel": [\3, \2, \1]/' \
		"units of other sizes"
	fault meta_init_order 's/"policy": "size_based_[0-9]*"/"policy": "size_based_1000000"/' "another policy"
	fault 'meta_init_nested_fsdp1_w*' 's/"module": "l3"/"module": "l3.lin1"/' "other units"
	fault 'state_adam_w*' 's/"resume_at": [0-9]*/"resume_at": 1/' "a state that was not recorded"
	fault 'sharded_optimizer_w*_uneven1' 's/"offsets": \[\([1-9]\)/"offsets": [1\1/' "other shards"
	fault 'sharded_optimizer_w*' 's/"lr": [0-9.]*/&1/' "another learning rate"
	fault shard_table_chunk_spec 's/"offsets": \[0, \([1-9]\)/"offsets": [0, 1\1/' "other chunks"
	fault shard_table_chunk_spec 's/"dim": -1/"dim": 0/' "another dimension"
	fault errors_combined 's/"name": "tp_uneven"/"name": "tp_odd"/' "an unknown row"
	fault errors_combined 's/"outcome": "error"/"outcome": "ok"/' "other outcomes"
	fault errors_combined '/"name": "hsdp_inf_one_replica"/,/fact/s/0\.0/1.0/g' "a fact that is not worse"
	fault errors_combined '/"name": "zero_grad_fsdp1_no_sync"/,/fact/s/: 1"/: 2"/' "another fact"

	for n in $(cut -d' ' -f1 $work/faults | sort -nu); do
		grep "^$n " $work/faults > $work/injected
		./shardrun -n "$n" tests/golden/replay_golden --one $(cut -d' ' -f2 $work/injected) > $work/out 2>&1
		grep -E '^(PASS|FAIL|skip)' $work/out > $work/verdicts
		if grep -qv '^FAIL' $work/verdicts || [ "$(grep -c . $work/verdicts)" != "$(grep -c . $work/injected)" ]; then
			echo "FAIL: a fault was not found on $n ranks. The faults, then what was printed:"
			cat $work/injected $work/out
			exit 1
		fi
	done
	sed 's/^[^ ]* [^ ]* /found: /' $work/faults
	rm -rf $work/fault*

	# what is ignored would pass: fields that are not known, values that are not supported
	unknown()
	{
		copy "$sample" unknown$1
		sed "$2" "$sample/case.json" > $work/unknown$1/case.json
	}
	unknown 1 's/^ "accum": /"new_field": null,&/'
	unknown 2 's/"bias": true/&, "new_field": 1/'
	unknown 3 's/"accum_sync": "every"/"accum_sync": "sometimes", "reshard_after_forward": "2"/'
	unknown 4 's/"shape": \[\([0-9]*\)\], "names": \["dp"\]/"shape": [\1, 1], "names": ["shard", "replicate"]/'
	status=0
	./shardrun -n "$(world "$sample")" tests/golden/replay_golden $work/unknown? > $work/out 2>&1 || status=$?
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
	from=$2 to=$work/$1
	[ ! -d $to ] || return 0
	mkdir $to && cp "$from"/init.safetensors "$from"/expect.safetensors $to || exit 1
	inputs= i=0
	for k in $7; do
		cp "$from/input.rank$k.safetensors" $to/input.rank$i.safetensors || exit 1
		inputs="$inputs${inputs:+, }\"input.rank$i.safetensors\""
		i=$((i + 1))
	done
	awk '
		/"(inputs|expect_ranks)": \[$/ { in_list = 1 }
		in_list && /\]/ { in_list = 0 }
		{ printf "%s%s", $0, in_list ? "" : "\n" }' "$from/case.json" |
		sed -e '/^ "shards": {},$/d; /^ "shards": {$/,/^ },$/d' -e 's/"shards_at": \[[^]]*\]/"shards_at": []/' \
			-e "s/^ \"name\": .*/ \"name\": \"$1\",/; s/^ \"dp_size\": .*/ \"dp_size\": $i,/" \
			-e "s/^ \"world_size\": .*/ \"world_size\": $(echo $6 | wc -w),/" \
			-e "s/^ \"mesh\": .*/ \"mesh\": {\"shape\": [$3], \"names\": [$4]},/" \
			-e "s/^ \"data_index\": .*/ \"data_index\": \"$5\",/" -e "s/\"inputs\": \[ *\"input[^]]*\]/\"inputs\": [$inputs]/" \
			-e 's/"expect_ranks": \[[^]]*\]/"expect_ranks": []/' |
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
# list COUNT EXPRESSION: its values for i = 0 to COUNT - 1.
list()
{
	i=0
	while [ $i -lt "$1" ]; do
		printf '%s ' $(($2))
		i=$((i + 1))
	done
}
# wider NAME PATTERN MESH: three times the ranks, on a mesh of replicas and shards, 3xN or Nx3, or of one dimension.
wider()
{
	case=$(cases "$2" | head -n 1)
	[ -n "$case" ] || return 0
	n=$(world "$case")
	ranks=$(list $((3 * n)) "i % $n")
	case $3 in
	3xN) derive "$1_3x$n" "$case" "3, $n" '"replicate", "shard"' rank "$ranks" "$ranks" ;;
	Nx3) derive "$1_${n}x3" "$case" "$n, 3" '"replicate", "shard"' rank "$ranks" "$ranks" ;;
	flat) derive "$1_w$((3 * n))" "$case" $((3 * n)) '"dp"' rank "$ranks" "$ranks" ;;
	esac
}
# tensor NAME PATTERN MESH: on a mesh of DP x TP ranks one more TP, or three times the DP.
tensor()
{
	case=$(cases "$2" | head -n 1)
	[ -n "$case" ] || return 0
	shape=$(sed -n 's/^ "mesh": {"shape": \[\([0-9]*\), \([0-9]*\)\].*/\1 \2/p' "$case/case.json")
	dp=${shape% *} tp=${shape#* } data="mesh coordinate 0 (dp)"
	case $3 in
	TP) derive "$1_${dp}x$((tp + 1))" "$case" "$dp, $((tp + 1))" '"dp", "tp"' "$data" \
		"$(list $((dp * (tp + 1))) "i / ($tp + 1) * $tp")" "$(list "$dp" i)" ;;
	DP) derive "$1_$((3 * dp))x$tp" "$case" "$((3 * dp)), $tp" '"dp", "tp"' "$data" \
		"$(list $((3 * dp * tp)) "i / $tp % $dp * $tp")" "$(list $((3 * dp)) "i % $dp")" ;;
	esac
}

# ---- tables for other numbers of ranks and other sizes
#
# errors RANKS: what PyTorch does with a mesh of 2 x RANKS / 2. Of a recording all ranks of a row of the mesh, but its last
# one, have found the same.
errors()
{
	case=$(cases 'errors_combined*' | head -n 1)
	[ -n "$case" ] && grep -q '2-D meshes are 2 x world/2' "$case/case.json" && [ "$(world "$case")" -gt 3 ] || return 0
	mkdir $work/errors_w$1 || exit 1
	awk -v to="$1" '
		/^ "world_size"/ { from = $2 + 0; sub(/[0-9]+/, to) }
		/"name": "/ { split($0, word, "\""); row = word[2] == "name" ? word[4] : "" }
		/"outcome"/ && row == "reshard_int_hsdp" { sub(/"(ok|error)"/, to % 4 ? "\"error\"" : "\"ok\"") }
		/"outcome"/ && row == "tp_uneven" { sub(/"(ok|error)"/, to == 2 ? "\"ok\"" : "\"error\"") }
		/DeviceMesh/ { sub("tp=" from / 2, "tp=" to / 2) }
		/found_inf/ {
			at = index($0, "[")
			split(substr($0, at + 1), found, ",")
			list = ""
			for (r = 0; r < 2; r++)
				for (c = 1; c <= to / 2; c++)
					list = list (list == "" ? "" : ", ") found[r * from / 2 + (c < to / 2 ? 1 : from / 2)] + 0
			$0 = substr($0, 1, at) list substr($0, index($0, "]"))
		}
		{ print }' "$case/case.json" > $work/errors_w$1/case.json
	echo $work/errors_w$1 >> $work/derived
}
# meta RANKS: the wrap policies with layers of three times the width.
meta()
{
	case=$(cases 'meta_init_order*' | head -n 1)
	[ -n "$case" ] || return 0
	mkdir $work/meta_w$1 || exit 1
	awk -v ranks="$1" '
		/^ "world_size"/ { next }
		/^ "kind"/ { print " \"world_size\": " ranks "," }
		/"policy": "size_based_/ {
			match($0, /[0-9]+/)
			$0 = substr($0, 1, RSTART - 1) 9 * substr($0, RSTART, RLENGTH) substr($0, RSTART + RLENGTH)
		}
		/"unit_flat_numel"/ {
			at = index($0, "[")
			n = split(substr($0, at + 1, index($0, "]") - at - 1), size, ",")
			list = ""
			for (i = 1; i <= n; i++)
				list = list (i > 1 ? ", " : "") 9 * size[i]
			$0 = substr($0, 1, at) list substr($0, index($0, "]"))
		}
		{ print }' "$case/case.json" > $work/meta_w$1/case.json
	echo $work/meta_w$1 >> $work/derived
}
: > $work/derived
wider offload 'fsdp2_offload_fp32_w[2-9]*' Nx3
tensor tp 'tp_clip_p2_f32_1x*' TP
if [ "$SHARDRT_BACKEND" = cpu ]; then
	wider offload 'fsdp2_offload_fp32_w[2-9]*' 3xN
	wider clip 'clip_p2_w[2-9]*' Nx3
	wider clip 'clip_p2_w[2-9]*' 3xN
	wider clip 'clip_p2_w[2-9]*' flat
	tensor tp 'tp_clip_p2_f32_[2-9]x*' TP
	tensor tp 'tp_clip_p2_f32_1x*' DP
	errors 2
	errors 6
	meta 2
fi

# ---- all cases on the cpu; with SRT_TEST_WORLDS=largest one of a family, whose names differ in numbers alone (worlds,
# seeds, bits of a dtype): the others have the same code and, by other tests, the same bits. On other devices one of
# a family, too; where SRT_TEST_DEVICES is spread one of those whose names do not differ but in dtypes and in choices of
# the engine, on the fewest ranks.
#
# list_cases KIND: their ranks and folders; KIND: all, family, device
list_cases()
{
	worlds "$SRT_GOLDEN_DIR"/cases/* | awk -v kind="$1" '
		{
			name = $2
			sub(/.*\//, "", name)
			if (kind != "all") gsub(/[0-9]+/, "", name)
			if (kind == "device") {
				gsub(/_/, "__", name)
				gsub(/_(bf|f|none|every|last|all|reduce|flat|orig|full|gradop)(_|$)/, "", name)
			}
			if (!(name in count)) names[++n] = name
			if (!(name in small) || $1 > 1 && ($1 < ranks[name] || ranks[name] == 1)) {
				small[name] = $0
				ranks[name] = $1
			}
			of[name, count[name]++] = $0
		}
		END {
			for (i = 1; i <= n; i++)
				print kind == "device" ? small[names[i]] : of[names[i], length(names[i]) % count[names[i]]]
		}'
}
case ${SRT_BACKEND_NAME:-$SHARDRT_BACKEND}.$SRT_TEST_LONG.$SRT_TEST_WORLDS.$SRT_TEST_DEVICES in
*..largest.*) kind=family ;;
cpu.* | cuda.* | *.1.*) kind=all ;;
*.spread) kind=device ;;
*) kind=family ;;
esac
list_cases $kind > $work/cases
[ ! -s $work/derived ] || worlds $(cat $work/derived) >> $work/cases
case $kind in all) list_cases family ;; *) cat $work/cases ;; esac > $work/families
failed=0
# replay ONE CASE...: on $n ranks; ONE: --one or empty. Keeps the worst result of the parts: fail, pass, skip.
replay()
{
	one=$1 status=0
	shift
	[ $# -gt 0 ] || return 0
	./shardrun -n "$n" tests/golden/replay_golden $one "$@" >> $work/$form 2>&1 || status=$?
	case $status in
	0) [ "$worst" = fail ] || worst=pass ;;
	77) worst=${worst:-skip} ;;
	*) worst=fail failed=1 ;;
	esac
}
# report_world: the cell of $n ranks
report_world()
{
	case $worst in
	skip) cell "$n" skip "all cases need features that are not built yet" ;;
	?*) cell "$n" $worst ;;
	esac
}

# On the cpu with all strategies, on up to 3 ranks and one case of a family unless the test is long; all else with one of them
# by turns: the same bits. A long test has each form; the tables of other sizes in the first form alone.
for form in $forms; do
	use_form $form
	chosen=$work/cases
	[ $form = "${forms%% *}" ] || [ -n "$SRT_TEST_LONG" ] || chosen=$work/families
	for n in $(cut -d' ' -f1 $chosen | sort -nu); do
		grep "^$n " $chosen > $work/of_world
		worst=
		case $SHARDRT_BACKEND.$form.$SRT_TEST_LONG.$SRT_TEST_WORLDS.$n in
		*.largest.*) ;;
		cpu.threads.1.*)
			replay "" $(cut -d' ' -f2 $work/of_world)
			: > $work/of_world
			;;
		cpu.inline..*.[1-3])
			replay "" $(grep -Fxf $work/families $work/of_world | cut -d' ' -f2)
			grep -vFxf $work/families $work/of_world > $work/rest
			mv $work/rest $work/of_world
			;;
		esac
		replay --one $(cut -d' ' -f2 $work/of_world)
		report_world
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
