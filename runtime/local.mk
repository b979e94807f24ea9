# SPDX-License-Identifier: BSD-3-Clause
libshardrt_core_la_SOURCES += \
	runtime/context.c \
	runtime/ops.c \
	runtime/ops.h \
	runtime/ops_attention.c \
	runtime/ops_coo.c \
	runtime/ops_elementwise.c \
	runtime/ops_embedding.c \
	runtime/ops_matmul.c \
	runtime/ops_optim.c \
	runtime/ops_reduce.c \
	runtime/ops_rows.c \
	runtime/ops_scaler.c \
	runtime/ops_strided.c \
	runtime/ops_norm.c \
	runtime/engine.h \
	runtime/agree.c \
	runtime/build.c \
	runtime/check.c \
	runtime/checkpoint.c \
	runtime/clip.c \
	runtime/collect.c \
	runtime/engine.c \
	runtime/hash.c \
	runtime/optim.c \
	runtime/param.c \
	runtime/plan.c \
	runtime/print.c \
	runtime/reduce.c \
	runtime/room.c \
	runtime/shard.c \
	runtime/step.c \
	runtime/unit.c \
	runtime/unshard.c \
	runtime/safetensors.h \
	runtime/safetensors_read.c \
	runtime/safetensors_write.c
