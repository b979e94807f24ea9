# SPDX-License-Identifier: BSD-3-Clause
libshardrt_core_la_SOURCES += \
	runtime/checkpoint/checkpoint.c \
	runtime/checkpoint/safetensors.h \
	runtime/checkpoint/safetensors_read.c \
	runtime/checkpoint/safetensors_write.c \
	runtime/context.c \
	runtime/engine/build.c \
	runtime/engine/check.c \
	runtime/engine/engine.c \
	runtime/engine/engine.h \
	runtime/engine/gather_full.c \
	runtime/engine/grad_norm.c \
	runtime/engine/hash.c \
	runtime/engine/memory_check.c \
	runtime/engine/optim.c \
	runtime/engine/param.c \
	runtime/engine/plan.c \
	runtime/engine/print.c \
	runtime/engine/reduce.c \
	runtime/engine/shard.c \
	runtime/engine/step.c \
	runtime/engine/unit.c \
	runtime/engine/unshard.c \
	runtime/engine/verify.c \
	runtime/ops/attention.c \
	runtime/ops/coo.c \
	runtime/ops/elementwise.c \
	runtime/ops/embedding.c \
	runtime/ops/matmul.c \
	runtime/ops/norm.c \
	runtime/ops/ops.c \
	runtime/ops/ops.h \
	runtime/ops/optim.c \
	runtime/ops/reduce.c \
	runtime/ops/rows.c \
	runtime/ops/scaler.c \
	runtime/ops/strided.c
