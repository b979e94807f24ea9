# SPDX-License-Identifier: BSD-3-Clause
#
# A fuzz target is a program. With configure --enable-fuzz it has a second copy of the files that it tests: only these
# are compiled with the coverage counters that libFuzzer reads.
SCRIPT_TESTS += tests/fuzz/test_fuzz.sh
LONG_TESTS += tests/fuzz/test_fuzz_long.sh
EXTRA_DIST += tests/fuzz/corpus
fuzz_targets = \
	tests/fuzz/fuzz_config \
	tests/fuzz/fuzz_frame \
	tests/fuzz/fuzz_index \
	tests/fuzz/fuzz_safetensors \
	tests/fuzz/fuzz_sizes \
	tests/fuzz/fuzz_tokens
if HAVE_JANSSON
fuzz_targets += tests/fuzz/fuzz_family tests/fuzz/fuzz_flight tests/fuzz/fuzz_lora tests/fuzz/fuzz_sft \
	tests/fuzz/fuzz_tokenizer
endif
if HAVE_CHECKPOINTS
fuzz_targets += tests/fuzz/fuzz_manifest
endif
check_PROGRAMS += $(fuzz_targets)
if FUZZ
fuzz_main = tests/fuzz/fuzz.h
else
fuzz_main = tests/fuzz/fuzz.h tests/fuzz/run_corpus.c
endif
EXTRA_DIST += tests/fuzz/run_corpus.c
fuzz_compile = $(AM_CFLAGS) $(SRT_CFLAGS_FUZZ)
fuzz_link = $(AM_LDFLAGS) $(SRT_CFLAGS_FUZZ)
tests_fuzz_fuzz_config_SOURCES = tests/fuzz/fuzz_config.c base/config.c $(fuzz_main)
tests_fuzz_fuzz_config_CFLAGS = $(fuzz_compile)
tests_fuzz_fuzz_config_LDFLAGS = $(fuzz_link)
tests_fuzz_fuzz_family_SOURCES = tests/fuzz/fuzz_family.c models/families_config.c $(fuzz_main)
tests_fuzz_fuzz_family_CFLAGS = $(fuzz_compile)
tests_fuzz_fuzz_family_LDFLAGS = $(fuzz_link)
tests_fuzz_fuzz_flight_SOURCES = tests/fuzz/fuzz_flight.c tools/info/flight_read.c tools/info/flight_report.c \
	tools/info/flight_waits.c $(fuzz_main)
tests_fuzz_fuzz_flight_CFLAGS = $(fuzz_compile)
tests_fuzz_fuzz_flight_LDFLAGS = $(fuzz_link)
tests_fuzz_fuzz_frame_SOURCES = tests/fuzz/fuzz_frame.c collectives/bootstrap/wire.c $(fuzz_main)
tests_fuzz_fuzz_frame_CFLAGS = $(fuzz_compile)
tests_fuzz_fuzz_frame_LDFLAGS = $(fuzz_link)
tests_fuzz_fuzz_index_SOURCES = tests/fuzz/fuzz_index.c runtime/checkpoint/formats/index.c base/json.c $(fuzz_main)
tests_fuzz_fuzz_index_CFLAGS = $(fuzz_compile)
tests_fuzz_fuzz_index_LDFLAGS = $(fuzz_link)
tests_fuzz_fuzz_lora_SOURCES = tests/fuzz/fuzz_lora.c models/lora.c models/lora_config.c $(fuzz_main)
tests_fuzz_fuzz_lora_CFLAGS = $(fuzz_compile)
tests_fuzz_fuzz_lora_LDFLAGS = $(fuzz_link)
tests_fuzz_fuzz_manifest_SOURCES = tests/fuzz/fuzz_manifest.c runtime/checkpoint/formats/manifest_read.c base/json.c \
	$(fuzz_main)
tests_fuzz_fuzz_manifest_CFLAGS = $(fuzz_compile)
tests_fuzz_fuzz_manifest_LDFLAGS = $(fuzz_link)
tests_fuzz_fuzz_safetensors_SOURCES = tests/fuzz/fuzz_safetensors.c runtime/checkpoint/formats/safetensors_parse.c \
	base/json.c $(fuzz_main)
tests_fuzz_fuzz_safetensors_CFLAGS = $(fuzz_compile)
tests_fuzz_fuzz_safetensors_LDFLAGS = $(fuzz_link)
tests_fuzz_fuzz_sft_SOURCES = tests/fuzz/fuzz_sft.c models/data/chat.c models/data/sft_line.c models/string.c $(fuzz_main)
tests_fuzz_fuzz_sft_CFLAGS = $(fuzz_compile)
tests_fuzz_fuzz_sft_LDFLAGS = $(fuzz_link)
tests_fuzz_fuzz_sizes_SOURCES = tests/fuzz/fuzz_sizes.c tools/model_sizes.c $(fuzz_main)
tests_fuzz_fuzz_sizes_CFLAGS = $(fuzz_compile)
tests_fuzz_fuzz_sizes_LDFLAGS = $(fuzz_link)
tests_fuzz_fuzz_tokens_SOURCES = tests/fuzz/fuzz_tokens.c models/data/tokens.c $(fuzz_main)
tests_fuzz_fuzz_tokens_CFLAGS = $(fuzz_compile)
tests_fuzz_fuzz_tokens_LDFLAGS = $(fuzz_link)
tests_fuzz_fuzz_tokenizer_SOURCES = tests/fuzz/fuzz_tokenizer.c models/bpe.c models/bpe_encode.c models/string.c \
	models/tokenizer.c models/tokenizer_added.c models/tokenizer_decode.c models/tokenizer_encode.c models/tokenizer_json.c \
	models/tokenizer_normalize.c models/tokenizer_pattern.c models/tokenizer_read.c models/tokenizer_regex.c $(fuzz_main)
tests_fuzz_fuzz_tokenizer_CFLAGS = $(fuzz_compile)
tests_fuzz_fuzz_tokenizer_LDFLAGS = $(fuzz_link)
