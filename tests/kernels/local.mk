# SPDX-License-Identifier: BSD-3-Clause
DEVICE_PROGRAM_TESTS += \
	tests/kernels/test_attention_documents \
	tests/kernels/test_conformance \
	tests/kernels/test_kernels_activation \
	tests/kernels/test_kernels_adam8 \
	tests/kernels/test_kernels_attention \
	tests/kernels/test_kernels_bins \
	tests/kernels/test_kernels_coo \
	tests/kernels/test_kernels_elementwise \
	tests/kernels/test_kernels_embedding \
	tests/kernels/test_kernels_glu \
	tests/kernels/test_kernels_layernorm \
	tests/kernels/test_kernels_muon \
	tests/kernels/test_kernels_norms \
	tests/kernels/test_kernels_optim \
	tests/kernels/test_kernels_products \
	tests/kernels/test_kernels_quantize \
	tests/kernels/test_kernels_rotary \
	tests/kernels/test_kernels_rows \
	tests/kernels/test_kernels_scaler \
	tests/kernels/test_kernels_sum_parts \
	tests/kernels/test_ops \
	tests/kernels/test_ops_args \
	tests/kernels/test_ops_index_copy \
	tests/kernels/test_ops_products \
	tests/kernels/test_ops_sum_parts \
	tests/kernels/test_ops_vocab \
	tests/kernels/test_scratch \
	tests/kernels/test_strided \
	tests/kernels/test_tuned
PROGRAM_TESTS += \
	tests/kernels/test_attention \
	tests/kernels/test_fast \
	tests/kernels/test_fpenv \
	tests/kernels/test_half \
	tests/kernels/test_math \
	tests/kernels/test_matmul \
	tests/kernels/test_selftest \
	tests/kernels/test_softfma
LONG_TESTS += tests/kernels/test_math_all.sh

.PHONY: update-digests
update-digests: tests/kernels/test_conformance
	$(AM_V_GEN)tests/kernels/test_conformance print > digests.tmp
	$(AM_V_at)mv digests.tmp $(srcdir)/kernels/cases/digests.def

libfixtures_a_SOURCES += \
	tests/kernels/all_cases.c tests/kernels/all_cases.h \
	tests/kernels/attention_ref.c tests/kernels/attention_ref.h \
	tests/kernels/kernel_check.c tests/kernels/kernel_check.h \
	tests/kernels/kernel_operations.c tests/kernels/kernel_operations.h \
	tests/kernels/norm_check.c tests/kernels/norm_check.h \
	tests/kernels/ops_check.h
tests_kernels_test_tuned_SOURCES = \
	tests/kernels/test_tuned.c \
	tests/kernels/tuned_attention.c \
	tests/kernels/tuned_matmul.c \
	tests/kernels/tuned_tensor.c tests/kernels/tuned_tensor.h

# The elementary functions are compiled once for each instruction set, for the tests that compare these.
MATH_EVAL = libmath_eval_baseline.la
if HAVE_AVX2
MATH_EVAL += libmath_eval_avx2.la
endif
if HAVE_AVX512
MATH_EVAL += libmath_eval_avx512.la
endif
libmath_eval_baseline_la_SOURCES = tests/kernels/math_eval.c
libmath_eval_baseline_la_CPPFLAGS = $(libisa_baseline_la_CPPFLAGS)
libmath_eval_baseline_la_CFLAGS = $(libisa_baseline_la_CFLAGS)
libmath_eval_avx2_la_SOURCES = tests/kernels/math_eval.c
libmath_eval_avx2_la_CPPFLAGS = $(libisa_avx2_la_CPPFLAGS)
libmath_eval_avx2_la_CFLAGS = $(libisa_avx2_la_CFLAGS)
libmath_eval_avx512_la_SOURCES = tests/kernels/math_eval.c
libmath_eval_avx512_la_CPPFLAGS = $(libisa_avx512_la_CPPFLAGS)
libmath_eval_avx512_la_CFLAGS = $(libisa_avx512_la_CFLAGS)

check_LTLIBRARIES += $(MATH_EVAL)
tests_kernels_test_math_LDADD = $(MATH_EVAL) $(LDADD)
tests_kernels_test_kernels_activation_LDADD = $(MATH_EVAL) $(LDADD)
tests_kernels_test_kernels_elementwise_LDADD = $(MATH_EVAL) $(LDADD)
tests_kernels_test_kernels_products_LDADD = $(MATH_EVAL) $(LDADD)
tests_kernels_test_kernels_rows_LDADD = $(MATH_EVAL) $(LDADD)
