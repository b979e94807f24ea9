# SPDX-License-Identifier: BSD-3-Clause
#
# A test is one program or one shell script. Exit status: 0 passed, 77 skipped (with a line
# "SKIP: reason" printed), else failed. Programs link $(SRT_CORE), so that they see internals.
# They run in the top of the build folder; $srcdir is the top of the source.
#
#     check_PROGRAMS += tests/test_x            a program of tests/test_x.c and $(SRT_CORE), unless its
#                                               _SOURCES or _LDADD says otherwise ...
#     TESTS += tests/test_x                     ... that is a test by itself, or
#     TESTS += tests/test_x.sh                  is run on several ranks: see tests/run_ranks.sh
#     EXTRA_DIST += tests/test_x.sh
#     DEVICE_TESTS += tests/test_x              and runs on every backend: see tests/run_test.sh
#
# Tests that take more than some seconds go to LONG_TESTS (scripts), run by `make check-long`, which
# also runs DEVICE_TESTS at all their numbers of ranks on all backends.
LDADD = $(SRT_CORE)
TEST_EXTENSIONS = .sh
LOG_COMPILER = $(SHELL) $(srcdir)/tests/run_test.sh
SH_LOG_COMPILER = $(SHELL) $(srcdir)/tests/run_test.sh
# The modules of the tests' own backends are named here; others are found in the build tree. What is compiled for a
# device is kept in the build tree. intercept_tls_get_addr: up to
# gcc 13 and LLVM 16 the sanitizers take a thread's block of a loaded module for one of an old glibc if its address
# happens to end in certain bits, and the search for leaks then crashes ("Tracer caught signal 11"). Jobs that run
# at once are not all bound to the same cores.
AM_TESTS_ENVIRONMENT = \
	SHARDRT_MODULE_PATH='$(abs_builddir)/tests/backend_toy/.libs:$(abs_builddir)/tests/backend_linked/.libs'; \
	SHARDRT_CACHE_DIR='$(abs_builddir)/tests/cache'; \
	SHARDRT_BIND="$${SHARDRT_BIND:-no}"; \
	export SHARDRT_MODULE_PATH SHARDRT_CACHE_DIR SHARDRT_BIND; \
	ASAN_OPTIONS="intercept_tls_get_addr=0:$$ASAN_OPTIONS"; \
	LSAN_OPTIONS="suppressions=$(abs_top_srcdir)/tests/lsan.supp:$$LSAN_OPTIONS"; \
	TSAN_OPTIONS="suppressions=$(abs_top_srcdir)/tests/tsan.supp:$$TSAN_OPTIONS"; \
	export ASAN_OPTIONS LSAN_OPTIONS TSAN_OPTIONS; \
	SRT_DEVICE_TESTS='$(DEVICE_TESTS) $(LONG_DEVICE_TESTS)'; export SRT_DEVICE_TESTS; \
	SRT_TEST_LONG='$(SRT_TEST_LONG)'; export SRT_TEST_LONG; \
	SRT_GOLDEN_DIR='$(SRT_GOLDEN_DIR)'; export SRT_GOLDEN_DIR; \
	CC='$(CC)'; export CC; NM='$(NM)'; export NM; AWK='$(AWK)'; export AWK; \
	PKG_CONFIG='$(PKG_CONFIG)'; export PKG_CONFIG; \
	SRT_SANITIZE='$(SRT_CFLAGS_SANITIZE)'; export SRT_SANITIZE;
# Ends the suite's output with the table of backends and ranks, what was skipped and one line for
# machines.
AM_TESTSUITE_SUMMARY_HEADER = "$$(echo ' for $(PACKAGE_STRING)'; $(SHELL) $(srcdir)/tests/summary.sh $(TEST_LOGS))"
LONG_TESTS =
DEVICE_TESTS =
LONG_DEVICE_TESTS = # those of LONG_TESTS that run on every backend
# What TSan is for: tests of streams, events and ranks; run by `make check-threads`.
THREAD_TESTS = \
	tests/test_log \
	tests/test_streams \
	tests/test_threads \
	tests/test_device \
	tests/test_collectives.sh \
	tests/test_engine.sh \
	tests/test_train_streams.sh
# The programs of these, for check-threads alone: the others need not be compiled.
THREAD_TESTS_NEED = \
	tests/list_backends \
	tests/test_collectives \
	tests/test_device \
	tests/test_engine \
	tests/test_engine_values \
	tests/test_log \
	tests/test_streams \
	tests/test_threads

EXTRA_DIST += \
	tests/bits.h \
	tests/by_rank.sh \
	tests/check.h \
	tests/lsan.supp \
	tests/random.h \
	tests/run_ranks.sh \
	tests/run_test.sh \
	tests/summary.sh \
	tests/transport.sh \
	tests/tsan.supp \
	tests/wait.sh

# What DEVICE_TESTS run on: SHARDRT_TEST_BACKENDS (NAME,NAME...; a missing one is then a failure), or all
# backends that are known. Looked up anew for each run.
check_PROGRAMS += tests/list_backends
check_DATA = tests/backends.txt
CLEANFILES += tests/backends.txt
.PHONY: look-for-backends
tests/backends.txt: tests/list_backends $(check_LTLIBRARIES) look-for-backends
	$(AM_V_GEN)$(AM_TESTS_ENVIRONMENT) srcdir='$(srcdir)' \
		tests/list_backends "$$SHARDRT_TEST_BACKENDS" > $@.tmp
	$(AM_V_at)mv $@.tmp $@

clean-local:
	rm -rf tests/cache

.PHONY: check-long
check-long:
	SRT_PATIENCE=$${SRT_PATIENCE:-1} \
		$(MAKE) $(AM_MAKEFLAGS) check TESTS='$(LONG_TESTS) $(DEVICE_TESTS)' SRT_TEST_LONG=1

# What no compiler or build has to do with: in CI, one build's tests and the tarball's are enough.
SOURCE_TESTS = tests/test_dialect.sh tests/test_docs.sh tests/test_format.sh tests/test_layers.sh
.PHONY: check-build
check-build:
	$(MAKE) $(AM_MAKEFLAGS) check TESTS='$(filter-out $(SOURCE_TESTS),$(TESTS))'

# Of a tarball, in CI (`make distcheck TESTS='$(DIST_TESTS)'`): those that read the sources or what is installed, and
# one training. Whether the code is right is seen in the builds from the repository, of the same sources.
DIST_TESTS = \
	tests/test_docs.sh \
	tests/test_format.sh \
	tests/test_gpu_check.sh \
	tests/test_harness.sh \
	tests/test_headers.sh \
	tests/test_info.sh \
	tests/test_install.sh \
	tests/test_layers.sh \
	tests/test_man.sh \
	tests/test_module \
	tests/test_porting.sh \
	tests/test_symbols.sh \
	tests/test_train_cli.sh \
	tests/test_train_streams.sh
# The programs of these: the others need not be compiled.
DIST_TESTS_NEED = \
	tests/always_fails \
	tests/list_backends \
	tests/test_buffers \
	tests/test_module

.PHONY: check-threads
check-threads:
	$(MAKE) $(AM_MAKEFLAGS) check TESTS='$(THREAD_TESTS)' check_PROGRAMS='$(THREAD_TESTS_NEED)'

# The cuda backend over the fake driver (tests/fake_cuda/): what runs on any device.
.PHONY: check-cuda
check-cuda:
	SHARDRT_TEST_BACKENDS=fakecuda $(MAKE) $(AM_MAKEFLAGS) check TESTS='$(DEVICE_TESTS)'

# ---- base and the harness itself
check_PROGRAMS += tests/test_config tests/test_dtype tests/test_log tests/test_memory tests/test_status
TESTS += tests/test_config tests/test_dtype tests/test_log tests/test_memory tests/test_status

check_PROGRAMS += tests/always_fails
tests_always_fails_CPPFLAGS = $(AM_CPPFLAGS) -DNDEBUG
TESTS += tests/test_harness.sh

# ---- the sources and the built library as a whole
TESTS += \
	tests/test_docs.sh \
	tests/test_format.sh \
	tests/test_headers.sh \
	tests/test_info.sh \
	tests/test_install.sh \
	tests/test_layers.sh \
	tests/test_man.sh \
	tests/test_porting.sh \
	tests/test_symbols.sh
EXTRA_DIST += \
	tests/cites.awk \
	tests/layers.awk \
	tests/cuda_code.awk \
	tests/opencl_names.awk \
	tests/slots.awk \
	tests/test_docs.sh \
	tests/test_format.sh \
	tests/test_harness.sh \
	tests/test_headers.sh \
	tests/test_info.sh \
	tests/test_install.sh \
	tests/test_layers.sh \
	tests/test_man.sh \
	tests/test_porting.sh \
	tests/test_symbols.sh

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
libmath_eval_baseline_la_SOURCES = tests/math_eval.c
libmath_eval_baseline_la_CPPFLAGS = $(libisa_baseline_la_CPPFLAGS)
libmath_eval_baseline_la_CFLAGS = $(libisa_baseline_la_CFLAGS)
libmath_eval_avx2_la_SOURCES = tests/math_eval.c
libmath_eval_avx2_la_CPPFLAGS = $(libisa_avx2_la_CPPFLAGS)
libmath_eval_avx2_la_CFLAGS = $(libisa_avx2_la_CFLAGS)
libmath_eval_avx512_la_SOURCES = tests/math_eval.c
libmath_eval_avx512_la_CPPFLAGS = $(libisa_avx512_la_CPPFLAGS)
libmath_eval_avx512_la_CFLAGS = $(libisa_avx512_la_CFLAGS)

check_PROGRAMS += tests/test_math
tests_test_math_LDADD = $(MATH_EVAL) $(SRT_CORE)
TESTS += tests/test_math tests/test_dialect.sh

check_PROGRAMS += \
	tests/test_kernels_attention \
	tests/test_kernels_activation \
	tests/test_kernels_bins \
	tests/test_kernels_coo \
	tests/test_kernels_elementwise \
	tests/test_kernels_embedding \
	tests/test_kernels_layernorm \
	tests/test_kernels_norms \
	tests/test_kernels_optim \
	tests/test_kernels_products \
	tests/test_kernels_rows \
	tests/test_kernels_scaler \
	tests/test_selftest
tests_test_kernels_attention_SOURCES = \
	tests/attention_ref.h \
	tests/test_kernels_attention.c \
	tests/kernel_check.h
tests_test_kernels_attention_LDADD = $(SRT_CORE) -lm
tests_test_kernels_activation_SOURCES = tests/test_kernels_activation.c tests/kernel_check.h
tests_test_kernels_activation_LDADD = $(MATH_EVAL) $(SRT_CORE) -lm
tests_test_kernels_norms_SOURCES = tests/test_kernels_norms.c tests/kernel_check.h tests/norm_check.h
tests_test_kernels_bins_SOURCES = tests/test_kernels_bins.c tests/kernel_check.h
tests_test_kernels_coo_SOURCES = tests/test_kernels_coo.c tests/kernel_check.h
tests_test_kernels_elementwise_SOURCES = tests/test_kernels_elementwise.c tests/half.h tests/kernel_check.h
tests_test_kernels_elementwise_LDADD = $(MATH_EVAL) $(SRT_CORE)
tests_test_kernels_embedding_SOURCES = tests/test_kernels_embedding.c tests/kernel_check.h
tests_test_kernels_layernorm_SOURCES = tests/test_kernels_layernorm.c tests/kernel_check.h tests/norm_check.h
tests_test_kernels_optim_SOURCES = tests/test_kernels_optim.c tests/kernel_check.h
tests_test_kernels_products_SOURCES = tests/test_kernels_products.c tests/kernel_check.h
tests_test_kernels_products_LDADD = $(MATH_EVAL) $(SRT_CORE)
tests_test_kernels_rows_SOURCES = tests/test_kernels_rows.c tests/kernel_check.h
tests_test_kernels_scaler_SOURCES = tests/test_kernels_scaler.c tests/kernel_check.h
tests_test_kernels_rows_LDADD = $(MATH_EVAL) $(SRT_CORE)
TESTS += \
	tests/test_kernels_attention \
	tests/test_kernels_activation \
	tests/test_kernels_bins \
	tests/test_kernels_coo \
	tests/test_kernels_elementwise \
	tests/test_kernels_embedding \
	tests/test_kernels_layernorm \
	tests/test_kernels_norms \
	tests/test_kernels_optim \
	tests/test_kernels_products \
	tests/test_kernels_rows \
	tests/test_kernels_scaler \
	tests/test_selftest
DEVICE_TESTS += \
	tests/test_kernels_attention \
	tests/test_kernels_activation \
	tests/test_kernels_bins \
	tests/test_kernels_coo \
	tests/test_kernels_elementwise \
	tests/test_kernels_embedding \
	tests/test_kernels_layernorm \
	tests/test_kernels_norms \
	tests/test_kernels_optim \
	tests/test_kernels_products \
	tests/test_kernels_rows \
	tests/test_kernels_scaler
LONG_TESTS += tests/test_math_all.sh tests/test_oclgrind.sh

# The kernels' cases as operations, for what runs all of them.
KERNEL_CASES = tests/kernel_operations.c tests/kernel_operations.h
check_PROGRAMS += tests/test_conformance
tests_test_conformance_SOURCES = tests/test_conformance.c $(KERNEL_CASES)
TESTS += tests/test_conformance
DEVICE_TESTS += tests/test_conformance
EXTRA_DIST += tests/test_dialect.sh tests/test_math_all.sh tests/test_oclgrind.sh

# ---- backends
EXTRA_DIST += tests/all_cases.h tests/device.h

check_PROGRAMS += tests/test_device
TESTS += tests/test_device

check_PROGRAMS += tests/test_buffers
TESTS += tests/test_buffers
DEVICE_TESTS += tests/test_buffers

check_PROGRAMS += tests/test_streams
TESTS += tests/test_streams
DEVICE_TESTS += tests/test_streams

# These link the module's objects, to reach internals.
OPENCL_TEST_LIBS = libopencl_backend.la $(SRT_CORE) $(SRT_OPENCL_LIBS)
if HAVE_OPENCL
check_PROGRAMS += tests/test_opencl tests/test_opencl_work
endif
tests_test_opencl_SOURCES = tests/test_opencl.c tests/opencl.h
tests_test_opencl_CPPFLAGS = $(AM_CPPFLAGS) $(SRT_OPENCL_CFLAGS)
tests_test_opencl_LDADD = $(OPENCL_TEST_LIBS)
tests_test_opencl_work_SOURCES = tests/test_opencl_work.c tests/opencl.h
tests_test_opencl_work_CPPFLAGS = $(AM_CPPFLAGS) $(SRT_OPENCL_CFLAGS)
tests_test_opencl_work_LDADD = $(OPENCL_TEST_LIBS)
TESTS += tests/test_opencl.sh
EXTRA_DIST += tests/test_opencl.sh

check_PROGRAMS += tests/test_threads
tests_test_threads_SOURCES = tests/test_threads.c $(KERNEL_CASES)
TESTS += tests/test_threads

check_PROGRAMS += tests/test_fpenv
tests_test_fpenv_SOURCES = tests/test_fpenv.c $(KERNEL_CASES)
TESTS += tests/test_fpenv

check_PROGRAMS += tests/test_fake
tests_test_fake_SOURCES = tests/test_fake.c tests/fake_backend.c tests/fake_backend.h $(KERNEL_CASES)
TESTS += tests/test_fake

check_PROGRAMS += tests/test_ops
tests_test_ops_SOURCES = tests/test_ops.c $(KERNEL_CASES)
TESTS += tests/test_ops
DEVICE_TESTS += tests/test_ops

check_PROGRAMS += tests/test_ops_args
TESTS += tests/test_ops_args
DEVICE_TESTS += tests/test_ops_args

check_PROGRAMS += tests/test_context
tests_test_context_SOURCES = tests/test_context.c tests/fake_backend.c tests/fake_backend.h
TESTS += tests/test_context

check_PROGRAMS += tests/test_module
tests_test_module_CPPFLAGS = $(AM_CPPFLAGS) -DSRT_LIBDIR_NAME='"$(srt_libdir_name)"'
TESTS += tests/test_module
# -rpath makes libtool build shared objects of them.
if HAVE_SHARED
check_LTLIBRARIES += tests/module_test.la tests/module_empty.la
endif
tests_module_test_la_SOURCES = tests/module_test.c
tests_module_test_la_LDFLAGS = $(SRT_MODULE_LDFLAGS) -rpath $(pkglibdir)
tests_module_test_la_LIBADD = libkernels_table.la
tests_module_empty_la_SOURCES = tests/module_empty.c
tests_module_empty_la_LDFLAGS = $(AM_LDFLAGS) -module -shared -avoid-version -rpath $(pkglibdir)

check_PROGRAMS += tests/test_half
tests_test_half_SOURCES = tests/test_half.c tests/half.h
tests_test_half_LDADD = $(SRT_CORE) -lm
TESTS += tests/test_half

check_PROGRAMS += tests/test_softfma
tests_test_softfma_LDADD = $(SRT_CORE) -lm
TESTS += tests/test_softfma

check_PROGRAMS += tests/test_matmul
tests_test_matmul_LDADD = $(SRT_CORE) -lm
TESTS += tests/test_matmul

check_PROGRAMS += tests/test_fast
tests_test_fast_LDADD = $(SRT_CORE) -lm
TESTS += tests/test_fast

check_PROGRAMS += tests/test_tuned
tests_test_tuned_SOURCES = tests/test_tuned.c tests/tuned_attention.c tests/tuned_matmul.c tests/tuned_tensor.c \
	tests/tuned_tensor.h tests/half.h
tests_test_tuned_LDADD = $(SRT_CORE) -lm
TESTS += tests/test_tuned
DEVICE_TESTS += tests/test_tuned

check_PROGRAMS += tests/test_scratch
TESTS += tests/test_scratch
DEVICE_TESTS += tests/test_scratch

check_PROGRAMS += tests/test_strided
tests_test_strided_LDADD = $(SRT_CORE)
TESTS += tests/test_strided
DEVICE_TESTS += tests/test_strided

check_PROGRAMS += tests/test_attention
tests_test_attention_SOURCES = tests/test_attention.c tests/attention_ref.h tests/half.h
tests_test_attention_LDADD = $(SRT_CORE) -lm
TESTS += tests/test_attention

# ---- collectives, launcher
check_PROGRAMS += tests/test_collectives
tests_test_collectives_SOURCES = tests/test_collectives.c tests/job.h
check_PROGRAMS += tests/test_staging
tests_test_staging_SOURCES = tests/test_staging.c tests/job.h
check_PROGRAMS += tests/test_messages
tests_test_messages_SOURCES = tests/test_messages.c tests/job.h
check_PROGRAMS += tests/test_coll_order
tests_test_coll_order_SOURCES = tests/test_coll_order.c tests/job.h
check_PROGRAMS += tests/test_mismatch
tests_test_mismatch_SOURCES = tests/test_mismatch.c tests/job.h
check_PROGRAMS += tests/test_peer_failures
tests_test_peer_failures_SOURCES = tests/test_peer_failures.c tests/job.h
check_PROGRAMS += tests/test_peers
check_PROGRAMS += tests/test_bootstrap
tests_test_bootstrap_SOURCES = tests/test_bootstrap.c collectives/bootstrap/rendezvous.c collectives/bootstrap/rendezvous.h
srt_coll_scripts = \
	tests/test_collectives.sh \
	tests/test_coll_order.sh \
	tests/test_messages.sh \
	tests/test_staging.sh \
	tests/test_mismatch.sh \
	tests/test_peer_failures.sh \
	tests/test_kill.sh \
	tests/test_shardrun.sh
TESTS += $(srt_coll_scripts) tests/test_peers tests/test_bootstrap
DEVICE_TESTS += \
	tests/test_collectives.sh \
	tests/test_coll_order.sh \
	tests/test_messages.sh \
	tests/test_staging.sh \
	tests/test_mismatch.sh \
	tests/test_peer_failures.sh \
	tests/test_kill.sh
LONG_TESTS += tests/test_kill_long.sh
EXTRA_DIST += $(srt_coll_scripts) tests/test_kill_long.sh

# ---- engine
check_PROGRAMS += \
	tests/test_shard \
	tests/test_engine \
	tests/test_engine_values \
	tests/test_engine_errors \
	tests/test_engine_plan
tests_test_engine_SOURCES = tests/test_engine.c tests/engine_case.h
tests_test_engine_errors_SOURCES = tests/test_engine_errors.c tests/engine_case.h
tests_test_engine_plan_SOURCES = tests/test_engine_plan.c tests/engine_case.h
tests_test_engine_values_SOURCES = tests/test_engine_values.c tests/engine_case.h
TESTS += \
	tests/test_shard \
	tests/test_engine.sh \
	tests/test_engine_errors.sh \
	tests/test_engine_plan.sh
DEVICE_TESTS += \
	tests/test_engine.sh \
	tests/test_engine_errors.sh \
	tests/test_engine_plan.sh
EXTRA_DIST += \
	tests/test_engine.sh \
	tests/test_engine_errors.sh \
	tests/test_engine_plan.sh

# ---- checkpoints
check_PROGRAMS += tests/test_safetensors
TESTS += tests/test_safetensors

check_PROGRAMS += tests/test_checkpoint
TESTS += tests/test_checkpoint.sh tests/test_checkpoint_python.sh
DEVICE_TESTS += tests/test_checkpoint.sh
EXTRA_DIST += tests/test_checkpoint.sh tests/test_checkpoint_python.sh

# ---- golden runs
if HAVE_JANSSON
check_PROGRAMS += tests/replay_golden
endif
tests_replay_golden_SOURCES = \
	tests/replay.h \
	tests/replay_case.c \
	tests/replay_casts.c \
	tests/replay_compare.c \
	tests/replay_features.c \
	tests/replay_golden.c \
	tests/replay_model.c \
	tests/replay_step.c \
	tests/replay_desk.h \
	tests/replay_scaler.c \
	tests/replay_sparse.c \
	tests/replay_table.c \
	tests/replay_tail.c \
	tests/replay_train.c
tests_replay_golden_LDADD = libmodels.la $(SRT_CORE)
if !HAVE_JANSSON
$(tests_replay_golden_OBJECTS): needs-jansson
needs-jansson:
	@echo 'tests/replay_golden needs jansson (--with-jansson)' >&2; exit 1
endif
TESTS += tests/test_golden.sh
DEVICE_TESTS += tests/test_golden.sh
EXTRA_DIST += tests/test_golden.sh

# ---- models, tools
check_PROGRAMS += tests/test_text
tests_test_text_LDADD = libmodels.la $(SRT_CORE)
TESTS += tests/test_text

check_PROGRAMS += tests/test_tape tests/test_tape_head tests/test_tape_layers tests/test_tape_errors
EXTRA_DIST += tests/tape_case.h tests/tape_check.h
tests_test_tape_LDADD = libmodels.la $(SRT_CORE)
tests_test_tape_head_LDADD = libmodels.la $(SRT_CORE)
tests_test_tape_layers_LDADD = libmodels.la $(SRT_CORE)
tests_test_tape_errors_LDADD = libmodels.la $(SRT_CORE)
TESTS += tests/test_tape tests/test_tape_head tests/test_tape_layers tests/test_tape_errors
DEVICE_TESTS += tests/test_tape tests/test_tape_head tests/test_tape_layers tests/test_tape_errors

check_PROGRAMS += tests/test_gpt
tests_test_gpt_LDADD = libmodels.la $(SRT_CORE)
TESTS += tests/test_gpt.sh
DEVICE_TESTS += tests/test_gpt.sh
EXTRA_DIST += tests/test_gpt.sh

TESTS += tests/test_train_cli.sh tests/test_train_streams.sh tests/test_hash_matrix.sh
DEVICE_TESTS += tests/test_train_cli.sh tests/test_train_streams.sh tests/test_hash_matrix.sh
LONG_TESTS += tests/test_hash_matrix_long.sh
LONG_DEVICE_TESTS += tests/test_hash_matrix_long.sh
EXTRA_DIST += \
	tests/test_train_cli.sh \
	tests/test_train_streams.sh \
	tests/test_hash_matrix.sh \
	tests/test_hash_matrix_long.sh

# ---- the check of a machine with a GPU
TESTS += tests/test_gpu_check.sh
LONG_TESTS += tests/test_gpu_check_long.sh
EXTRA_DIST += tests/test_gpu_check.sh tests/test_gpu_check_long.sh

include $(top_srcdir)/tests/backend_toy/local.mk
include $(top_srcdir)/tests/backend_linked/local.mk
include $(top_srcdir)/tests/fake_cuda/local.mk
include $(top_srcdir)/tests/fake_cublaslt/local.mk
include $(top_srcdir)/tests/fake_nccl/local.mk
