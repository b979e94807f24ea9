# SPDX-License-Identifier: BSD-3-Clause
DEVICE_PROGRAM_TESTS += \
	tests/models/test_rounding \
	tests/models/test_tape \
	tests/models/test_tape_casts \
	tests/models/test_tape_decoder \
	tests/models/test_tape_errors \
	tests/models/test_tape_head \
	tests/models/test_tape_layers \
	tests/models/test_tape_recompute \
	tests/models/test_tape_scale \
	tests/models/test_transformer
DEVICE_SCRIPT_TESTS += tests/models/test_grpo.sh
RANK_TESTS += tests/models/test_decode tests/models/test_gpt tests/models/test_int8 tests/models/test_scaler_parity tests/models/test_tape_sums \
	tests/models/test_tape_gathered tests/models/test_tape_parts tests/models/test_tape_rows tests/models/test_tape_vocab
EVERY_DEVICE_TESTS += tests/models/test_decode.sh tests/models/test_tape_layers
# The trainings of tests/golden and tests/tools/test_hash_matrix.sh have scalers on every device.
ONE_DEVICE_TESTS += tests/models/test_scaler_parity.sh
# Used by tests/tools, too.
EXTRA_DIST += tests/models/tokenizer.json
# Run by tests/tools/test_hash_matrix.sh.
check_PROGRAMS += tests/models/test_gpt_infinity
PROGRAM_TESTS += \
	tests/models/test_families \
	tests/models/test_lora \
	tests/models/test_rotary \
	tests/models/test_sample \
	tests/models/test_sft \
	tests/models/test_sft_lines \
	tests/models/test_sft_rows \
	tests/models/test_text \
	tests/models/test_text_files \
	tests/models/test_tokenizer \
	tests/models/test_tokenizer_refused \
	tests/models/test_tokenizer_regex
libfixtures_a_SOURCES += \
	tests/models/parts_case.c tests/models/parts_case.h \
	tests/models/sft_case.c tests/models/sft_case.h \
	tests/models/tape_case.c tests/models/tape_case.h \
	tests/models/tape_check.c \
	tests/models/tokenizer_case.c tests/models/tokenizer_case.h
