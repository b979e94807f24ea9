# SPDX-License-Identifier: BSD-3-Clause
#
# Not installed: tools and tests link it. Includes nothing but <shardrt/...> and models/.
noinst_LTLIBRARIES += libmodels.la
libmodels_la_SOURCES = \
	models/data/text.c \
	models/data/text.h \
	models/data/tokens.c \
	models/data/tokens.h \
	models/generate.c \
	models/generate.h \
	models/gpt.c \
	models/gpt.h \
	models/gpt_hf.c \
	models/gpt_hf.h \
	models/hash.c \
	models/hash.h \
	models/layer_activation.c \
	models/layer_attention.c \
	models/layer_batchnorm.c \
	models/layer_broadcast.c \
	models/layer_cast.c \
	models/layer_dropout.c \
	models/layer_elementwise.c \
	models/layer_embedding.c \
	models/layer_gather.c \
	models/layer_head.c \
	models/layer_linear.c \
	models/layer_loss.c \
	models/layer_norm.c \
	models/layer_rmsnorm.c \
	models/layer_transpose.c \
	models/layers.h \
	models/mlp.c \
	models/mlp.h \
	models/model.c \
	models/model.h \
	models/tape.c \
	models/tape.h \
	models/tape_impl.h \
	models/tape_plan.c \
	models/tape_run.c \
	models/tape_sums.c \
	models/tape_units.c \
	models/transformer.c \
	models/transformer.h \
	models/try.h
