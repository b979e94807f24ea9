# SPDX-License-Identifier: BSD-3-Clause
#
# Includes nothing but <shardrt/...> and models/. libshardrt-models is installed: the tape, the layers, decoders
# and tokenizers, with the public symbols alone. libmodels.la has them too, and the models of tests, which are not installed.
INSTALLED_MODEL_SOURCES = \
	models/attention_impl.h \
	models/bpe.c \
	models/bpe.h \
	models/bpe_encode.c \
	models/bpe_impl.h \
	models/decoder.c \
	models/decoder_cache.c \
	models/decoder_check.c \
	models/decoder_impl.h \
	models/decoder_inputs.c \
	models/decoder_int8.c \
	models/decoder_load.c \
	models/decoder_lora.c \
	models/decoder_parts.c \
	models/decoder_tables.c \
	models/decoder_tape.c \
	models/decoder_weights.c \
	models/fail.c \
	models/families.c \
	models/families_config.c \
	models/families_impl.h \
	models/families_text.c \
	models/floats.c \
	models/floats.h \
	models/generate.c \
	models/hash.c \
	models/hash.h \
	models/layer_activation.c \
	models/layer_attention.c \
	models/layer_attention_cached.c \
	models/layer_batchnorm.c \
	models/layer_broadcast.c \
	models/layer_cast.c \
	models/layer_dropout.c \
	models/layer_elementwise.c \
	models/layer_embedding.c \
	models/layer_gather.c \
	models/layer_glu.c \
	models/layer_head.c \
	models/layer_linear.c \
	models/layer_parts.c \
	models/layer_loss.c \
	models/layer_norm.c \
	models/layer_rmsnorm.c \
	models/layer_rotary.c \
	models/layer_rows.c \
	models/layer_scale.c \
	models/layer_transpose.c \
	models/lora.c \
	models/lora_config.c \
	models/lora_files.c \
	models/lora_merge.c \
	models/model.c \
	models/model.h \
	models/over_sqrt.c \
	models/over_sqrt.h \
	models/presets.h \
	models/rotary.c \
	models/sample.c \
	models/sample.h \
	models/string.c \
	models/string.h \
	models/tape.c \
	models/tape_impl.h \
	models/tape_mesh.c \
	models/tape_plan.c \
	models/tape_run.c \
	models/tape_sums.c \
	models/tape_units.c \
	models/tokenizer.c \
	models/tokenizer_added.c \
	models/tokenizer_decode.c \
	models/tokenizer_encode.c \
	models/tokenizer_impl.h \
	models/tokenizer_json.c \
	models/tokenizer_json.h \
	models/tokenizer_normalize.c \
	models/tokenizer_pattern.c \
	models/tokenizer_pattern.h \
	models/tokenizer_read.c \
	models/tokenizer_regex.c \
	models/try.h

noinst_LTLIBRARIES += libmodels.la
libmodels_la_SOURCES = \
	$(INSTALLED_MODEL_SOURCES) \
	models/data/chat.c \
	models/data/chat.h \
	models/data/pack.c \
	models/data/pack.h \
	models/data/sft.c \
	models/data/sft.h \
	models/data/sft_impl.h \
	models/data/sft_line.c \
	models/data/sft_rows.c \
	models/data/text.c \
	models/data/text.h \
	models/data/text_file.c \
	models/data/text_file.h \
	models/data/tokens.c \
	models/data/tokens.h \
	models/gguf.h \
	models/gguf_encode.c \
	models/gguf_families.c \
	models/gguf_keys.c \
	models/gguf_pre.c \
	models/gguf_pre.h \
	models/gguf_tensors.c \
	models/gguf_tokenizer.c \
	models/gpt_hf.c \
	models/gpt_hf.h \
	models/mlp.c \
	models/mlp.h \
	models/transformer.c \
	models/transformer.h
libmodels_la_LIBADD = $(SRT_MODELS_LIBS)

shardrtmodelsincludedir = $(includedir)/shardrt/models
shardrtmodelsinclude_HEADERS = \
	include/shardrt/models/decoder.h \
	include/shardrt/models/families.h \
	include/shardrt/models/generate.h \
	include/shardrt/models/layers.h \
	include/shardrt/models/lora.h \
	include/shardrt/models/model.h \
	include/shardrt/models/rotary.h \
	include/shardrt/models/tape.h \
	include/shardrt/models/tokenizer.h

# libshardrt is named by its file: libtool links a library that needs another libtool library again when it is installed,
# and refuses that under `make install prefix=DIR`. An installed tree may be moved, so it is found next to this library.
lib_LTLIBRARIES += libshardrt-models.la
libshardrt_models_la_SOURCES = $(INSTALLED_MODEL_SOURCES)
libshardrt_models_la_LIBADD = $(SRT_MODELS_LIBS) -lm
libshardrt_models_la_LDFLAGS = $(AM_LDFLAGS) -version-info 0:0:0 -no-undefined \
	-Wl,.libs/libshardrt.so -Wl,-rpath,'$$ORIGIN'
libshardrt_models_la_DEPENDENCIES = libshardrt.la
if HAVE_SYMBOL_MAP
libshardrt_models_la_LDFLAGS += -Wl,--version-script=libshardrt-models.map
libshardrt_models_la_DEPENDENCIES += libshardrt-models.map
endif
CLEANFILES += libshardrt-models.map
libshardrt-models.map: $(shardrtmodelsinclude_HEADERS) scripts/symbols.awk
	$(AM_V_GEN)cd $(srcdir) && $(AWK) -v map=SHARDRT_MODELS_0 -f scripts/symbols.awk \
		$(shardrtmodelsinclude_HEADERS) > $(abs_builddir)/$@.tmp
	$(AM_V_at)mv $@.tmp $@
