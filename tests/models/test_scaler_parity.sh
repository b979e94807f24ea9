#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Parity: 003 TestShardedGradScalerParityWithDDP.test_fsdp_ddp_parity_with_grad_scaler, `cpu_offload` False |
# 2, 3 | all | passes
# Parity: 003 TestShardedGradScalerParityWithDDP.test_fsdp_ddp_parity_with_grad_scaler, `cpu_offload` True |
# 2, 3 | all | passes
# Parity: 003 TestShardedGradScalerParityWithDDP.test_sharded_grad_scaler_found_inf, `cpu_offload` False |
# 2, 3 | all | passes
# Parity: 003 TestShardedGradScalerParityWithDDP.test_sharded_grad_scaler_found_inf, `cpu_offload` True |
# 2, 3 | all | passes
. "$srcdir/tests/harness/run_ranks.sh"
for form in $forms; do
	use_form $form
	run_ranks "2 3" tests/models/test_scaler_parity
	[ -n "$SRT_TEST_LONG" ] || [ "$SHARDRT_BACKEND" != cpu ] || break # tests/engine/test_scaler.sh has the other
done
