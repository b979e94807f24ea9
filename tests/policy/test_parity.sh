#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The table in docs/parity.md is what the tests say of themselves: comments "Parity: TEST | RANKS | BACKENDS | STATE",
# where TEST is a test of PyTorch, with its number, and arguments if other rows have the rest of them. What is not
# built yet is in a list below; a test that is written for it takes its row from there. Each test of PyTorch has a row.
. "$srcdir/tests/harness/table.sh"
cd "$srcdir" || exit 1

pytorch='000 TestFullyShardGradientScaler.test_gradient_scaler
001 TestPureFP16.test_pure_fp16_training
001 TestPureFP16.test_fp16_dtypes
002 TestShardedOptimizer.test_sharded_optim
002 TestShardedOptimizer.test_named_params_with_sharded_tensor
003 TestShardGradScaler.test_grad_scaling
003 TestShardGradScaler.test_scaling_unscaling_sparse
003 TestShardGradScaler.test_inf_gradients_skip_optim_step
003 TestShardedGradScalerParityWithDDP.test_fsdp_ddp_parity_with_grad_scaler
003 TestShardedGradScalerParityWithDDP.test_sharded_grad_scaler_found_inf
004 TestFSDPWithMetaDevice.test_simple_model_with_meta_device_reset_params
004 TestFSDPWithMetaDevice.test_simple_model_with_meta_device_default_init
004 TestFSDPWithMetaDevice.test_simple_model_with_torchdistX_default_init
004 TestFSDPWithMetaDevice.test_simple_model_with_torchdistX_init_fn
004 TestFSDPWithMetaDevice.test_nested_model_with_meta_device_reset_params
004 TestFSDPWithMetaDevice.test_nested_model_with_meta_device_default_init
004 TestFSDPWithMetaDevice.test_nested_model_with_torchdistX_default_init
004 TestFSDPWithMetaDevice.test_nested_model_with_torchdistX_init_fn
004 TestFSDPWithMetaDevice.test_bad_arg_torchdistx
004 TestFSDPWithMetaDevice.test_bad_arg_meta
004 TestFSDPWithMetaDevice.test_meta_device_with_mixed_precision'

rows=$(rows_of Parity)
[ -n "$rows" ] || { echo "no test names a test of PyTorch"; exit 1; }

# Rows of all backends are of tests that run on all of them, or of programs that those run.
failed=0
for file in $(echo "$rows" | sed -n 's/.* | all | .*`\(.*\)` |$/\1/p' | sort -u); do
	case " $SRT_DEVICE_TESTS " in
	*" ${file%.c} "* | *" ${file%.*}.sh "*) continue ;;
	esac
	# shellcheck disable=SC2086
	(for test in $SRT_DEVICE_TESTS; do echo "$test"; done) | grep '\.sh$' |
		xargs grep -q "${file%.c}\$" || { echo "$file does not run on all backends"; failed=1; }
done

rows=$(echo "$rows" | LC_ALL=C sort)
bad=$(echo "$rows" | grep -vE ' [|] (passes|same meaning: .*|not yet: .*|refused: .*) [|]( `[^`]*`)? [|]$')
[ -z "$bad" ] || { echo "no state, or another one: $bad"; failed=1; }
named=$(echo "$rows" | sed 's/^| //; s/ *[,|].*//' | sort -u)
missing=$(echo "$pytorch" | grep -vxF "$named")
unknown=$(echo "$named" | grep -vxF "$pytorch")
[ -z "$missing" ] || { echo "tests of PyTorch without a row: $missing"; failed=1; }
[ -z "$unknown" ] || { echo "PyTorch has no such tests: $unknown"; failed=1; }
[ $failed = 0 ] || exit 1
compare_table docs/parity.md '| test of PyTorch | ranks | backends | state | test of ours |' "$rows"
