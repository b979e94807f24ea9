# SPDX-License-Identifier: BSD-3-Clause
#
# A test is one program or one shell script. Exit status: 0 passed, 77 skipped (with a line
# "SKIP: reason" printed), else failed. Programs link $(SRT_CORE), so that they see internals.
# They run in the top of the build folder; $srcdir is the top of the source.
#
#     check_PROGRAMS += tests/LAYER/test_x      a program of tests/LAYER/test_x.c and $(SRT_CORE), unless
#                                               its _SOURCES or _LDADD says otherwise ...
#     TESTS += tests/LAYER/test_x               ... that is a test by itself, or
#     TESTS += tests/LAYER/test_x.sh            is run on several ranks: see tests/harness/run_ranks.sh
#     EXTRA_DIST += tests/LAYER/test_x.sh
#     DEVICE_TESTS += tests/LAYER/test_x        and runs on every backend: see tests/harness/run_test.sh
#
# Tests that take more than some seconds go to LONG_TESTS (scripts), run by `make check-long`, which
# also runs DEVICE_TESTS at all their numbers of ranks on all backends.
LDADD = $(SRT_CORE)
TEST_EXTENSIONS = .sh
LOG_COMPILER = $(SHELL) $(srcdir)/tests/harness/run_test.sh
SH_LOG_COMPILER = $(SHELL) $(srcdir)/tests/harness/run_test.sh
# Modules are taken from the build, and what is compiled for a device is kept in it. intercept_tls_get_addr: up to
# gcc 13 and LLVM 16 the sanitizers take a thread's block of a loaded module for one of an old glibc if its address
# happens to end in certain bits, and the search for leaks then crashes ("Tracer caught signal 11"). Jobs that run
# at once are not all bound to the same cores.
AM_TESTS_ENVIRONMENT = \
	SHARDRT_MODULE_PATH='$(abs_builddir)/.libs:$(abs_builddir)/tests/fakes/backend_toy/.libs:$(abs_builddir)/tests/fakes/backend_linked/.libs'; \
	SHARDRT_CACHE_DIR='$(abs_builddir)/tests/cache'; \
	SHARDRT_BIND="$${SHARDRT_BIND:-no}"; \
	export SHARDRT_MODULE_PATH SHARDRT_CACHE_DIR SHARDRT_BIND; \
	ASAN_OPTIONS="intercept_tls_get_addr=0:$$ASAN_OPTIONS"; \
	LSAN_OPTIONS="suppressions=$(abs_top_srcdir)/tests/harness/lsan.supp:$$LSAN_OPTIONS"; \
	TSAN_OPTIONS="suppressions=$(abs_top_srcdir)/tests/harness/tsan.supp:$$TSAN_OPTIONS"; \
	export ASAN_OPTIONS LSAN_OPTIONS TSAN_OPTIONS; \
	SRT_DEVICE_TESTS='$(DEVICE_TESTS) $(LONG_DEVICE_TESTS)'; export SRT_DEVICE_TESTS; \
	SRT_TEST_LONG='$(SRT_TEST_LONG)'; export SRT_TEST_LONG; \
	SRT_GOLDEN_DIR='$(SRT_GOLDEN_DIR)'; export SRT_GOLDEN_DIR; \
	CC='$(CC)'; export CC; NM='$(NM)'; export NM; OBJDUMP='$(OBJDUMP)'; export OBJDUMP; AWK='$(AWK)'; export AWK; \
	PKG_CONFIG='$(PKG_CONFIG)'; export PKG_CONFIG; \
	SRT_SANITIZE='$(SRT_CFLAGS_SANITIZE)'; export SRT_SANITIZE;
# Ends the suite's output with the table of backends and ranks, what was skipped and one line for
# machines.
AM_TESTSUITE_SUMMARY_HEADER = "$$(echo ' for $(PACKAGE_STRING)'; $(SHELL) $(srcdir)/tests/harness/summary.sh $(TEST_LOGS))"
LONG_TESTS =
DEVICE_TESTS =
LONG_DEVICE_TESTS = # those of LONG_TESTS that run on every backend
# What TSan is for: tests of streams, events and ranks; run by `make check-threads`.
THREAD_TESTS = \
	tests/base/test_log \
	tests/device/test_streams \
	tests/device/test_threads \
	tests/device/test_device \
	tests/collectives/test_collectives.sh \
	tests/engine/test_engine.sh \
	tests/tools/test_train_streams.sh
# The programs of these, for check-threads alone: the others need not be compiled.
THREAD_TESTS_NEED = \
	tests/harness/list_backends \
	tests/collectives/test_collectives \
	tests/device/test_device \
	tests/engine/test_engine \
	tests/engine/test_engine_values \
	tests/base/test_log \
	tests/device/test_streams \
	tests/device/test_threads

EXTRA_DIST += \
	tests/harness/bits.h \
	tests/harness/by_rank.sh \
	tests/harness/check.h \
	tests/harness/lsan.supp \
	tests/harness/random.h \
	tests/harness/run_ranks.sh \
	tests/harness/run_test.sh \
	tests/harness/summary.sh \
	tests/harness/transport.sh \
	tests/harness/tsan.supp \
	tests/harness/wait.sh

# What DEVICE_TESTS run on: SHARDRT_TEST_BACKENDS (NAME,NAME...; a missing one is then a failure), or all
# backends that are known. Looked up anew for each run.
check_PROGRAMS += tests/harness/list_backends
check_DATA = tests/backends.txt
CLEANFILES += tests/backends.txt
.PHONY: look-for-backends
tests/backends.txt: tests/harness/list_backends $(check_LTLIBRARIES) look-for-backends
	$(AM_V_GEN)$(AM_TESTS_ENVIRONMENT) srcdir='$(srcdir)' \
		tests/harness/list_backends "$$SHARDRT_TEST_BACKENDS" > $@.tmp
	$(AM_V_at)mv $@.tmp $@

# The files of the tarball, for tests that read the sources: a build in the source folder adds others there.
check_DATA += tests/sources.txt
CLEANFILES += tests/sources.txt
tests/sources.txt: Makefile
	$(AM_V_GEN)printf '%s\n' $(sort $(patsubst $(srcdir)/%,%,$(DISTFILES))) > $@.tmp
	$(AM_V_at)mv $@.tmp $@

clean-local:
	rm -rf tests/cache

.PHONY: check-long
check-long:
	SRT_PATIENCE=$${SRT_PATIENCE:-1} \
		$(MAKE) $(AM_MAKEFLAGS) check TESTS='$(LONG_TESTS) $(DEVICE_TESTS)' SRT_TEST_LONG=1

.PHONY: check-threads
check-threads:
	$(MAKE) $(AM_MAKEFLAGS) check TESTS='$(THREAD_TESTS)' check_PROGRAMS='$(THREAD_TESTS_NEED)'

# The cuda backend over the fake driver (tests/fakes/fake_cuda/): what runs on any device.
.PHONY: check-cuda
check-cuda:
	SHARDRT_TEST_BACKENDS=fakecuda $(MAKE) $(AM_MAKEFLAGS) check TESTS='$(DEVICE_TESTS)'

# ---- base and the harness itself
check_PROGRAMS += tests/base/test_config tests/base/test_dtype tests/base/test_log tests/base/test_memory tests/base/test_status
TESTS += tests/base/test_config tests/base/test_dtype tests/base/test_log tests/base/test_memory tests/base/test_status

check_PROGRAMS += tests/harness/always_fails
tests_harness_always_fails_CPPFLAGS = $(AM_CPPFLAGS) -DNDEBUG
TESTS += tests/harness/test_harness.sh

# ---- the sources and the built library as a whole
TESTS += \
	tests/policy/test_docs.sh \
	tests/policy/test_format.sh \
	tests/policy/test_headers.sh \
	tests/tools/test_info.sh \
	tests/tools/test_install.sh \
	tests/policy/test_layers.sh \
	tests/policy/test_porting.sh \
	tests/policy/test_symbols.sh
EXTRA_DIST += \
	tests/policy/cites.awk \
	tests/policy/layers.awk \
	tests/policy/cuda_code.awk \
	tests/policy/opencl_names.awk \
	tests/policy/slots.awk \
	tests/policy/test_docs.sh \
	tests/policy/test_format.sh \
	tests/harness/test_harness.sh \
	tests/policy/test_headers.sh \
	tests/tools/test_info.sh \
	tests/tools/test_install.sh \
	tests/policy/test_layers.sh \
	tests/policy/test_porting.sh \
	tests/policy/test_symbols.sh

# ---- kernels
# What is compared between instruction sets is compiled once for each.
check_LTLIBRARIES = $(MATH_EVAL)
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

check_PROGRAMS += tests/kernels/test_math
tests_kernels_test_math_LDADD = $(MATH_EVAL) $(SRT_CORE)
TESTS += tests/kernels/test_math $(DIALECT_TESTS)

# Takes a minute, and the build does not change its result: `make check DIALECT_TESTS=` leaves it out.
DIALECT_TESTS = tests/policy/test_dialect.sh

check_PROGRAMS += \
	tests/kernels/test_kernels_attention \
	tests/kernels/test_kernels_activation \
	tests/kernels/test_kernels_bins \
	tests/kernels/test_kernels_coo \
	tests/kernels/test_kernels_elementwise \
	tests/kernels/test_kernels_embedding \
	tests/kernels/test_kernels_layernorm \
	tests/kernels/test_kernels_norms \
	tests/kernels/test_kernels_optim \
	tests/kernels/test_kernels_products \
	tests/kernels/test_kernels_rows \
	tests/kernels/test_kernels_scaler \
	tests/kernels/test_selftest
tests_kernels_test_kernels_attention_SOURCES = \
	tests/kernels/attention_ref.h \
	tests/kernels/test_kernels_attention.c \
	tests/kernels/kernel_check.h
tests_kernels_test_kernels_attention_LDADD = $(SRT_CORE) -lm
tests_kernels_test_kernels_activation_SOURCES = tests/kernels/test_kernels_activation.c tests/kernels/kernel_check.h
tests_kernels_test_kernels_activation_LDADD = $(MATH_EVAL) $(SRT_CORE) -lm
tests_kernels_test_kernels_norms_SOURCES = tests/kernels/test_kernels_norms.c tests/kernels/kernel_check.h tests/kernels/norm_check.h
tests_kernels_test_kernels_bins_SOURCES = tests/kernels/test_kernels_bins.c tests/kernels/kernel_check.h
tests_kernels_test_kernels_coo_SOURCES = tests/kernels/test_kernels_coo.c tests/kernels/kernel_check.h
tests_kernels_test_kernels_elementwise_SOURCES = tests/kernels/test_kernels_elementwise.c tests/harness/half.h tests/kernels/kernel_check.h
tests_kernels_test_kernels_elementwise_LDADD = $(MATH_EVAL) $(SRT_CORE)
tests_kernels_test_kernels_embedding_SOURCES = tests/kernels/test_kernels_embedding.c tests/kernels/kernel_check.h
tests_kernels_test_kernels_layernorm_SOURCES = tests/kernels/test_kernels_layernorm.c tests/kernels/kernel_check.h tests/kernels/norm_check.h
tests_kernels_test_kernels_optim_SOURCES = tests/kernels/test_kernels_optim.c tests/kernels/kernel_check.h
tests_kernels_test_kernels_products_SOURCES = tests/kernels/test_kernels_products.c tests/kernels/kernel_check.h
tests_kernels_test_kernels_products_LDADD = $(MATH_EVAL) $(SRT_CORE)
tests_kernels_test_kernels_rows_SOURCES = tests/kernels/test_kernels_rows.c tests/kernels/kernel_check.h
tests_kernels_test_kernels_scaler_SOURCES = tests/kernels/test_kernels_scaler.c tests/kernels/kernel_check.h
tests_kernels_test_kernels_rows_LDADD = $(MATH_EVAL) $(SRT_CORE)
TESTS += \
	tests/kernels/test_kernels_attention \
	tests/kernels/test_kernels_activation \
	tests/kernels/test_kernels_bins \
	tests/kernels/test_kernels_coo \
	tests/kernels/test_kernels_elementwise \
	tests/kernels/test_kernels_embedding \
	tests/kernels/test_kernels_layernorm \
	tests/kernels/test_kernels_norms \
	tests/kernels/test_kernels_optim \
	tests/kernels/test_kernels_products \
	tests/kernels/test_kernels_rows \
	tests/kernels/test_kernels_scaler \
	tests/kernels/test_selftest
DEVICE_TESTS += \
	tests/kernels/test_kernels_attention \
	tests/kernels/test_kernels_activation \
	tests/kernels/test_kernels_bins \
	tests/kernels/test_kernels_coo \
	tests/kernels/test_kernels_elementwise \
	tests/kernels/test_kernels_embedding \
	tests/kernels/test_kernels_layernorm \
	tests/kernels/test_kernels_norms \
	tests/kernels/test_kernels_optim \
	tests/kernels/test_kernels_products \
	tests/kernels/test_kernels_rows \
	tests/kernels/test_kernels_scaler
LONG_TESTS += tests/kernels/test_math_all.sh tests/device/test_oclgrind.sh

# The kernels' cases as operations, for what runs all of them.
KERNEL_CASES = tests/kernels/kernel_operations.c tests/kernels/kernel_operations.h
check_PROGRAMS += tests/kernels/test_conformance
tests_kernels_test_conformance_SOURCES = tests/kernels/test_conformance.c $(KERNEL_CASES)
TESTS += tests/kernels/test_conformance
DEVICE_TESTS += tests/kernels/test_conformance
EXTRA_DIST += tests/policy/test_dialect.sh tests/kernels/test_math_all.sh tests/device/test_oclgrind.sh

# ---- backends
EXTRA_DIST += tests/kernels/all_cases.h tests/harness/device.h

check_PROGRAMS += tests/device/test_device
TESTS += tests/device/test_device

check_PROGRAMS += tests/device/test_buffers
TESTS += tests/device/test_buffers
DEVICE_TESTS += tests/device/test_buffers

check_PROGRAMS += tests/device/test_streams
TESTS += tests/device/test_streams
DEVICE_TESTS += tests/device/test_streams

# These link the module's objects, to reach internals.
OPENCL_TEST_LIBS = libopencl_backend.la $(SRT_CORE) $(SRT_OPENCL_LIBS)
if HAVE_OPENCL
check_PROGRAMS += tests/device/test_opencl tests/device/test_opencl_work
endif
tests_device_test_opencl_SOURCES = tests/device/test_opencl.c tests/device/opencl.h
tests_device_test_opencl_CPPFLAGS = $(AM_CPPFLAGS) $(SRT_OPENCL_CFLAGS)
tests_device_test_opencl_LDADD = $(OPENCL_TEST_LIBS)
tests_device_test_opencl_work_SOURCES = tests/device/test_opencl_work.c tests/device/opencl.h
tests_device_test_opencl_work_CPPFLAGS = $(AM_CPPFLAGS) $(SRT_OPENCL_CFLAGS)
tests_device_test_opencl_work_LDADD = $(OPENCL_TEST_LIBS)
TESTS += tests/device/test_opencl.sh
EXTRA_DIST += tests/device/test_opencl.sh

check_PROGRAMS += tests/device/test_threads
tests_device_test_threads_SOURCES = tests/device/test_threads.c $(KERNEL_CASES)
TESTS += tests/device/test_threads

check_PROGRAMS += tests/kernels/test_fpenv
tests_kernels_test_fpenv_SOURCES = tests/kernels/test_fpenv.c $(KERNEL_CASES)
TESTS += tests/kernels/test_fpenv

check_PROGRAMS += tests/device/test_fake
tests_device_test_fake_SOURCES = tests/device/test_fake.c tests/fakes/fake_backend.c tests/fakes/fake_backend.h $(KERNEL_CASES)
TESTS += tests/device/test_fake

check_PROGRAMS += tests/kernels/test_ops
tests_kernels_test_ops_SOURCES = tests/kernels/test_ops.c $(KERNEL_CASES)
TESTS += tests/kernels/test_ops
DEVICE_TESTS += tests/kernels/test_ops

check_PROGRAMS += tests/kernels/test_ops_args
TESTS += tests/kernels/test_ops_args
DEVICE_TESTS += tests/kernels/test_ops_args

check_PROGRAMS += tests/engine/test_context
tests_engine_test_context_SOURCES = tests/engine/test_context.c tests/fakes/fake_backend.c tests/fakes/fake_backend.h
TESTS += tests/engine/test_context

check_PROGRAMS += tests/device/test_module
TESTS += tests/device/test_module
# -rpath makes libtool build shared objects of them.
if HAVE_SHARED
check_LTLIBRARIES += tests/fakes/module_test.la tests/fakes/module_empty.la
endif
tests_fakes_module_test_la_SOURCES = tests/fakes/module_test.c
tests_fakes_module_test_la_LDFLAGS = $(SRT_MODULE_LDFLAGS) -rpath $(pkglibdir)
tests_fakes_module_test_la_LIBADD = libkernels_table.la
tests_fakes_module_empty_la_SOURCES = tests/fakes/module_empty.c
tests_fakes_module_empty_la_LDFLAGS = $(AM_LDFLAGS) -module -shared -avoid-version -rpath $(pkglibdir)

check_PROGRAMS += tests/kernels/test_half
tests_kernels_test_half_SOURCES = tests/kernels/test_half.c tests/harness/half.h
tests_kernels_test_half_LDADD = $(SRT_CORE) -lm
TESTS += tests/kernels/test_half

check_PROGRAMS += tests/kernels/test_softfma
tests_kernels_test_softfma_LDADD = $(SRT_CORE) -lm
TESTS += tests/kernels/test_softfma

check_PROGRAMS += tests/kernels/test_matmul
tests_kernels_test_matmul_LDADD = $(SRT_CORE) -lm
TESTS += tests/kernels/test_matmul

check_PROGRAMS += tests/kernels/test_fast
tests_kernels_test_fast_LDADD = $(SRT_CORE) -lm
TESTS += tests/kernels/test_fast

check_PROGRAMS += tests/kernels/test_tuned
tests_kernels_test_tuned_SOURCES = tests/kernels/test_tuned.c tests/kernels/tuned_attention.c tests/kernels/tuned_matmul.c tests/kernels/tuned_tensor.c \
	tests/kernels/tuned_tensor.h tests/harness/half.h
tests_kernels_test_tuned_LDADD = $(SRT_CORE) -lm
TESTS += tests/kernels/test_tuned
DEVICE_TESTS += tests/kernels/test_tuned

check_PROGRAMS += tests/kernels/test_scratch
TESTS += tests/kernels/test_scratch
DEVICE_TESTS += tests/kernels/test_scratch

check_PROGRAMS += tests/kernels/test_strided
tests_kernels_test_strided_LDADD = $(SRT_CORE)
TESTS += tests/kernels/test_strided
DEVICE_TESTS += tests/kernels/test_strided

check_PROGRAMS += tests/kernels/test_attention
tests_kernels_test_attention_SOURCES = tests/kernels/test_attention.c tests/kernels/attention_ref.h tests/harness/half.h
tests_kernels_test_attention_LDADD = $(SRT_CORE) -lm
TESTS += tests/kernels/test_attention

# ---- collectives, launcher
check_PROGRAMS += tests/collectives/test_collectives
tests_collectives_test_collectives_SOURCES = tests/collectives/test_collectives.c tests/harness/job.h
check_PROGRAMS += tests/collectives/test_staging
tests_collectives_test_staging_SOURCES = tests/collectives/test_staging.c tests/harness/job.h
check_PROGRAMS += tests/collectives/test_messages
tests_collectives_test_messages_SOURCES = tests/collectives/test_messages.c tests/harness/job.h
check_PROGRAMS += tests/collectives/test_coll_order
tests_collectives_test_coll_order_SOURCES = tests/collectives/test_coll_order.c tests/harness/job.h
check_PROGRAMS += tests/collectives/test_mismatch
tests_collectives_test_mismatch_SOURCES = tests/collectives/test_mismatch.c tests/harness/job.h
check_PROGRAMS += tests/collectives/test_peer_failures
tests_collectives_test_peer_failures_SOURCES = tests/collectives/test_peer_failures.c tests/harness/job.h
check_PROGRAMS += tests/collectives/test_peers
check_PROGRAMS += tests/collectives/test_bootstrap
tests_collectives_test_bootstrap_SOURCES = tests/collectives/test_bootstrap.c collectives/bootstrap/rendezvous.c collectives/bootstrap/rendezvous.h
srt_coll_scripts = \
	tests/collectives/test_collectives.sh \
	tests/collectives/test_coll_order.sh \
	tests/collectives/test_messages.sh \
	tests/collectives/test_staging.sh \
	tests/collectives/test_mismatch.sh \
	tests/collectives/test_peer_failures.sh \
	tests/collectives/test_kill.sh \
	tests/tools/test_shardrun.sh
TESTS += $(srt_coll_scripts) tests/collectives/test_peers tests/collectives/test_bootstrap
DEVICE_TESTS += \
	tests/collectives/test_collectives.sh \
	tests/collectives/test_coll_order.sh \
	tests/collectives/test_messages.sh \
	tests/collectives/test_staging.sh \
	tests/collectives/test_mismatch.sh \
	tests/collectives/test_peer_failures.sh \
	tests/collectives/test_kill.sh
LONG_TESTS += tests/collectives/test_kill_long.sh
EXTRA_DIST += $(srt_coll_scripts) tests/collectives/test_kill_long.sh

# ---- engine
check_PROGRAMS += \
	tests/engine/test_shard \
	tests/engine/test_engine \
	tests/engine/test_engine_values \
	tests/engine/test_engine_errors \
	tests/engine/test_engine_plan
tests_engine_test_engine_SOURCES = tests/engine/test_engine.c tests/engine/engine_case.h
tests_engine_test_engine_errors_SOURCES = tests/engine/test_engine_errors.c tests/engine/engine_case.h
tests_engine_test_engine_plan_SOURCES = tests/engine/test_engine_plan.c tests/engine/engine_case.h
tests_engine_test_engine_values_SOURCES = tests/engine/test_engine_values.c tests/engine/engine_case.h
TESTS += \
	tests/engine/test_shard \
	tests/engine/test_engine.sh \
	tests/engine/test_engine_errors.sh \
	tests/engine/test_engine_plan.sh
DEVICE_TESTS += \
	tests/engine/test_engine.sh \
	tests/engine/test_engine_errors.sh \
	tests/engine/test_engine_plan.sh
EXTRA_DIST += \
	tests/engine/test_engine.sh \
	tests/engine/test_engine_errors.sh \
	tests/engine/test_engine_plan.sh

# ---- checkpoints
check_PROGRAMS += tests/engine/test_safetensors
TESTS += tests/engine/test_safetensors

check_PROGRAMS += tests/engine/test_checkpoint
TESTS += tests/engine/test_checkpoint.sh tests/engine/test_checkpoint_python.sh
DEVICE_TESTS += tests/engine/test_checkpoint.sh
EXTRA_DIST += tests/engine/test_checkpoint.sh tests/engine/test_checkpoint_python.sh

# ---- golden runs
if HAVE_JANSSON
check_PROGRAMS += tests/golden/replay_golden
endif
tests_golden_replay_golden_SOURCES = \
	tests/golden/replay.h \
	tests/golden/replay_case.c \
	tests/golden/replay_casts.c \
	tests/golden/replay_compare.c \
	tests/golden/replay_features.c \
	tests/golden/replay_golden.c \
	tests/golden/replay_model.c \
	tests/golden/replay_step.c \
	tests/golden/replay_desk.h \
	tests/golden/replay_scaler.c \
	tests/golden/replay_sparse.c \
	tests/golden/replay_table.c \
	tests/golden/replay_tail.c \
	tests/golden/replay_train.c
tests_golden_replay_golden_LDADD = libmodels.la $(SRT_CORE)
if !HAVE_JANSSON
$(tests_golden_replay_golden_OBJECTS): needs-jansson
needs-jansson:
	@echo 'tests/golden/replay_golden needs jansson (--with-jansson)' >&2; exit 1
endif
TESTS += tests/golden/test_golden.sh
DEVICE_TESTS += tests/golden/test_golden.sh
EXTRA_DIST += tests/golden/test_golden.sh

# ---- models, tools
check_PROGRAMS += tests/models/test_text
tests_models_test_text_LDADD = libmodels.la $(SRT_CORE)
TESTS += tests/models/test_text

check_PROGRAMS += tests/models/test_tape tests/models/test_tape_head tests/models/test_tape_layers tests/models/test_tape_errors
EXTRA_DIST += tests/models/tape_case.h tests/models/tape_check.h
tests_models_test_tape_LDADD = libmodels.la $(SRT_CORE)
tests_models_test_tape_head_LDADD = libmodels.la $(SRT_CORE)
tests_models_test_tape_layers_LDADD = libmodels.la $(SRT_CORE)
tests_models_test_tape_errors_LDADD = libmodels.la $(SRT_CORE)
TESTS += tests/models/test_tape tests/models/test_tape_head tests/models/test_tape_layers tests/models/test_tape_errors
DEVICE_TESTS += tests/models/test_tape tests/models/test_tape_head tests/models/test_tape_layers tests/models/test_tape_errors

check_PROGRAMS += tests/models/test_gpt
tests_models_test_gpt_LDADD = libmodels.la $(SRT_CORE)
TESTS += tests/models/test_gpt.sh
DEVICE_TESTS += tests/models/test_gpt.sh
EXTRA_DIST += tests/models/test_gpt.sh

TESTS += tests/tools/test_train_cli.sh tests/tools/test_train_streams.sh tests/tools/test_hash_matrix.sh
DEVICE_TESTS += tests/tools/test_train_cli.sh tests/tools/test_train_streams.sh tests/tools/test_hash_matrix.sh
LONG_TESTS += tests/tools/test_hash_matrix_long.sh
LONG_DEVICE_TESTS += tests/tools/test_hash_matrix_long.sh
EXTRA_DIST += \
	tests/tools/test_train_cli.sh \
	tests/tools/test_train_streams.sh \
	tests/tools/test_hash_matrix.sh \
	tests/tools/test_hash_matrix_long.sh

# ---- the check of a machine with a GPU
TESTS += tests/tools/test_gpu_check.sh
LONG_TESTS += tests/tools/test_gpu_check_long.sh
EXTRA_DIST += tests/tools/test_gpu_check.sh tests/tools/test_gpu_check_long.sh

include $(top_srcdir)/tests/fakes/backend_toy/local.mk
include $(top_srcdir)/tests/fakes/backend_linked/local.mk
include $(top_srcdir)/tests/fakes/fake_cuda/local.mk
include $(top_srcdir)/tests/fakes/fake_cublaslt/local.mk
include $(top_srcdir)/tests/fakes/fake_nccl/local.mk
