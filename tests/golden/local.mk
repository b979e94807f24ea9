# SPDX-License-Identifier: BSD-3-Clause
DEVICE_SCRIPT_TESTS += tests/golden/test_golden.sh
DEVICE_SCRIPT_TESTS += tests/golden/test_hf.sh

# Run by test_golden.sh and test_hf.sh.
if HAVE_JANSSON
check_PROGRAMS += tests/golden/replay_golden tests/golden/replay_hf
endif
GOLDEN_SOURCES = \
	tests/golden/replay.h \
	tests/golden/replay_buffers.c \
	tests/golden/replay_case.c \
	tests/golden/replay_casts.c \
	tests/golden/replay_chain.c \
	tests/golden/replay_combine.c \
	tests/golden/replay_compare.c \
	tests/golden/replay_decoder.c \
	tests/golden/replay_errors.c \
	tests/golden/replay_features.c \
	tests/golden/replay_gpt.c \
	tests/golden/replay_grads.c \
	tests/golden/replay_ignored.c \
	tests/golden/replay_init.c \
	tests/golden/replay_layout.c \
	tests/golden/replay_meta.c \
	tests/golden/replay_model.c \
	tests/golden/replay_modules.c \
	tests/golden/replay_net.c \
	tests/golden/replay_net.h \
	tests/golden/replay_precision.c \
	tests/golden/replay_resume.c \
	tests/golden/replay_step.c \
	tests/golden/replay_fixture.h \
	tests/golden/replay_rounding.c \
	tests/golden/replay_run.c \
	tests/golden/replay_scaler.c \
	tests/golden/replay_sequences.c \
	tests/golden/replay_sharded.c \
	tests/golden/replay_sharded.h \
	tests/golden/replay_sharded_add.c \
	tests/golden/replay_shards.c \
	tests/golden/replay_sparse.c \
	tests/golden/replay_table.c \
	tests/golden/replay_tail.c \
	tests/golden/replay_train.c \
	tests/golden/replay_transformer.c
tests_golden_replay_golden_SOURCES = $(GOLDEN_SOURCES) tests/golden/replay_golden.c
tests_golden_replay_hf_SOURCES = $(GOLDEN_SOURCES) \
	tests/golden/replay_hf.c \
	tests/golden/replay_hf.h \
	tests/golden/replay_hf_decode.c \
	tests/golden/replay_hf_lora.c \
	tests/golden/replay_hf_model.c \
	tests/golden/replay_hf_muon.c \
	tests/golden/replay_hf_run.c \
	tests/golden/replay_hf_sft.c \
	tests/golden/replay_hf_tokenizer.c
if !HAVE_JANSSON
$(tests_golden_replay_golden_OBJECTS) $(tests_golden_replay_hf_OBJECTS): needs-jansson
needs-jansson:
	@echo 'the replays of tests/golden need jansson (--with-jansson)' >&2; exit 1
endif
