# SPDX-License-Identifier: BSD-3-Clause
#
# A test is a program or a shell script. Its exit status is 0 if it passed, 77 if it was skipped (it then prints
# "SKIP: reason"); any other status is a failure. A test runs in the top of the build folder; $srcdir is the
# top of the source.
#
# To add a test, write tests/<layer>/test_x.c or test_x.sh and name it once, in one of these lists, in
# tests/<layer>/local.mk:
#
#     PROGRAM_TESTS         a program; it runs once
#     SCRIPT_TESTS          a script; it runs once
#     DEVICE_PROGRAM_TESTS  a program that runs on every backend: see tests/harness/run_test.sh
#     DEVICE_SCRIPT_TESTS   a script that runs on every backend
#     RANK_TESTS            tests/<layer>/test_x: a script test_x.sh that runs a program test_x.c on several
#                           ranks of every backend: see tests/harness/run_ranks.sh
#     LONG_TESTS            a script that takes minutes; `make check-long` runs it
#     LONG_DEVICE_TESTS     the same on every backend
#
# A program that only scripts run is in check_PROGRAMS. Programs link $(LDADD): the fixtures, the model library and
# the library with its internal symbols. _SOURCES, _CPPFLAGS and _LDADD of a program are set where it needs others.
PROGRAM_TESTS =
SCRIPT_TESTS =
DEVICE_PROGRAM_TESTS =
DEVICE_SCRIPT_TESTS =
RANK_TESTS =
LONG_TESTS =
LONG_DEVICE_TESTS =
# Device tests of code that calls a device as other tests do: on the backends opencl and late, and on the fake CUDA driver,
# only make check-long runs them.
ONE_DEVICE_TESTS =
# Device tests of the engine and of what is above it that make check runs on every backend. The others run on the cpu and
# on one backend more (LEFT_OUT_opencl, LEFT_OUT_late): above the device interface the code is the same on each.
EVERY_DEVICE_TESTS =
# Tests of threads, streams and ranks, for TSan: `make check-threads` runs them. The second list has the
# programs that their scripts run, apart from those that are named as the script is.
THREAD_TESTS =
THREAD_TESTS_NEED = tests/harness/list_backends
# Comparisons with committed tables: trainings that run code of other tests, and what nvcc made of the kernels. A
# sanitizer need not see them.
RESULT_TESTS =
# Tests of which a sanitizer would see nothing else than in others: text of CUDA kernels, whose accesses the fake driver
# checks; the transport of NCCL by another library; the engine's code with commands in another order, and as its plan has
# it; an installation; a shell script; trainings of several hosts.
UNSANITIZED_TESTS = \
	$(POLICY_TESTS) \
	$(RESULT_TESTS) \
	$(RESULT_DEVICE_TESTS) \
	tests/collectives/test_nccl_linked.sh \
	tests/device/test_cuda_fast_attention \
	tests/device/test_cuda_tiles \
	tests/engine/test_engine_plan.sh \
	tests/engine/test_missing_edges.sh \
	tests/engine/test_orders.sh \
	tests/tools/test_gpu_check.sh \
	tests/tools/test_install.sh \
	tests/tools/test_train_hosts.sh
# Their programs that other tests run: test_nccl.sh.
UNSANITIZED_TESTS_NEED = tests/engine/test_engine_plan
# Tests of several nodes: `make check-cluster` runs them alone.
CLUSTER_TESTS =
check_LIBRARIES = libfixtures.a
check_LTLIBRARIES =

# Fixtures: what several tests share. Each folder adds its own.
libfixtures_a_SOURCES =
libfixtures_a_CPPFLAGS = $(AM_CPPFLAGS) $(SRT_CUDA_CFLAGS)
LDADD = libfixtures.a libmodels.la $(SRT_CORE)

include $(top_srcdir)/tests/harness/local.mk
include $(top_srcdir)/tests/policy/local.mk
include $(top_srcdir)/tests/base/local.mk
include $(top_srcdir)/tests/kernels/local.mk
include $(top_srcdir)/tests/device/local.mk
include $(top_srcdir)/tests/collectives/local.mk
include $(top_srcdir)/tests/engine/local.mk
include $(top_srcdir)/tests/tensors/local.mk
include $(top_srcdir)/tests/golden/local.mk
include $(top_srcdir)/tests/models/local.mk
include $(top_srcdir)/tests/tools/local.mk
include $(top_srcdir)/tests/fakes/local.mk
include $(top_srcdir)/tests/fuzz/local.mk

# Tests compile in half the time; what they test is compiled as always, and the fakes of drivers too.
srt_test_folders = base collectives device engine golden harness kernels models tensors
$(srt_test_folders:%=tests/%/%.$(OBJEXT)): SRT_CFLAGS_OPT = $(SRT_CFLAGS_TESTS)
tests/%.$(OBJEXT) tests/%.lo: SRT_CFLAGS_FRAME =

DEVICE_TESTS = $(DEVICE_PROGRAM_TESTS) $(DEVICE_SCRIPT_TESTS) $(RANK_TESTS:=.sh)
SCRIPT_TESTS += $(RESULT_TESTS)
# In this order they begin: those that take long or mostly wait come first, so that all cores are busy to the end.
TESTS += $(DEVICE_SCRIPT_TESTS) $(SCRIPT_TESTS) $(RANK_TESTS:=.sh) $(DEVICE_PROGRAM_TESTS) $(PROGRAM_TESTS)
check_PROGRAMS += $(PROGRAM_TESTS) $(DEVICE_PROGRAM_TESTS) $(RANK_TESTS)
$(check_PROGRAMS): private AM_LDFLAGS += $(SRT_LDFLAGS_TESTS)
EXTRA_DIST += $(SCRIPT_TESTS) $(DEVICE_SCRIPT_TESTS) $(RANK_TESTS:=.sh) \
	$(LONG_TESTS) $(LONG_DEVICE_TESTS)

# What make check leaves out on a backend, and make check-long does not: the engine and tensors run on late, which finds
# missing waits, and what is above them on opencl, whose memory and compiler are others than the cpu's. With
# SHARDRT_TEST_BACKENDS they run on all that it names, unless SRT_TEST_DEVICES=spread.
srt_engine_tests = tests/engine/% tests/tensors/%
srt_above_tests = $(filter-out $(EVERY_DEVICE_TESTS),$(filter $(srt_engine_tests) tests/golden/% tests/models/% tests/tools/%,$(DEVICE_TESTS)))
LEFT_OUT_opencl = $(ONE_DEVICE_TESTS) $(filter $(srt_engine_tests),$(srt_above_tests))
LEFT_OUT_late = $(ONE_DEVICE_TESTS) $(filter-out $(srt_engine_tests),$(srt_above_tests))
LEFT_OUT_fakecuda = $(ONE_DEVICE_TESTS) $(srt_above_tests)
srt_all_devices = $(SRT_TEST_LONG)$(if $(filter spread,$(SRT_TEST_DEVICES)),,$(SHARDRT_TEST_BACKENDS))

# ---- how they are run
TEST_EXTENSIONS = .sh
LOG_COMPILER = $(SHELL) $(srcdir)/tests/harness/run_test.sh
SH_LOG_COMPILER = $(SHELL) $(srcdir)/tests/harness/run_test.sh
# The modules of the tests' own backends are named here; others are found in the build tree. What is compiled for a
# device is kept in the build tree. intercept_tls_get_addr: up to
# gcc 13 and LLVM 16 the sanitizers take a thread's block of a loaded module for one of an old glibc if its address
# happens to end in certain bits, and the search for leaks then crashes ("Tracer caught signal 11").
# use_sigaltstack: a thread in which PoCL's compiler has set a signal stack ends with "failed to deallocate".
# quarantine_size_mb: freed memory that is not used again takes a quarter of the time; programs of tests free less. Jobs
# that run at once are not all bound to the same cores. LD_LIBRARY_PATH may have an installed library: the build's comes first.
AM_TESTS_ENVIRONMENT = \
	fakes='$(abs_builddir)/tests/fakes'; \
	SHARDRT_MODULE_PATH="$$fakes/backend_toy/.libs:$$fakes/backend_linked/.libs:$$fakes/backend_late/.libs"; \
	SHARDRT_CACHE_DIR='$(abs_builddir)/tests/cache'; \
	SHARDRT_BIND="$${SHARDRT_BIND:-no}"; \
	export SHARDRT_MODULE_PATH SHARDRT_CACHE_DIR SHARDRT_BIND; \
	LD_LIBRARY_PATH="$${LD_LIBRARY_PATH:+$(abs_builddir)/.libs:$$LD_LIBRARY_PATH}"; \
	ASAN_OPTIONS="intercept_tls_get_addr=0:use_sigaltstack=0:quarantine_size_mb=16:$$ASAN_OPTIONS"; \
	LSAN_OPTIONS="suppressions=$(abs_top_srcdir)/tests/harness/lsan.supp:$$LSAN_OPTIONS"; \
	TSAN_OPTIONS="suppressions=$(abs_top_srcdir)/tests/harness/tsan.supp:$$TSAN_OPTIONS"; \
	export ASAN_OPTIONS LSAN_OPTIONS TSAN_OPTIONS; \
	SRT_DEVICE_TESTS='$(DEVICE_TESTS) $(LONG_DEVICE_TESTS)'; export SRT_DEVICE_TESTS; \
	SRT_THREAD_TESTS='$(THREAD_TESTS)'; export SRT_THREAD_TESTS; \
	SRT_LEFT_OUT='$(if $(srt_all_devices),,$(LEFT_OUT_opencl:%=opencl:%) $(LEFT_OUT_late:%=late:%))'; export SRT_LEFT_OUT; \
	SRT_TEST_LONG='$(SRT_TEST_LONG)'; export SRT_TEST_LONG; \
	SRT_EMULATOR='$(EMULATOR)'; export SRT_EMULATOR; \
	SRT_GOLDEN_DIR='$(SRT_GOLDEN_DIR)'; export SRT_GOLDEN_DIR; \
	CC='$(CC)'; export CC; NM='$(NM)'; export NM; OBJDUMP='$(OBJDUMP)'; export OBJDUMP; AWK='$(AWK)'; export AWK; \
	PKG_CONFIG='$(PKG_CONFIG)'; export PKG_CONFIG; \
	SRT_SANITIZE='$(SRT_CFLAGS_SANITIZE)'; export SRT_SANITIZE; \
	SRT_FUZZ='$(SRT_CFLAGS_FUZZ)'; export SRT_FUZZ;
# Ends the suite's output with the table of backends and ranks, what was skipped and one line for
# machines.
AM_TESTSUITE_SUMMARY_HEADER = "$$(echo ' for $(PACKAGE_STRING)'; $(SHELL) $(srcdir)/tests/harness/summary.sh $(TEST_LOGS))"

# What DEVICE_TESTS run on: SHARDRT_TEST_BACKENDS (NAME,NAME...; a missing one is then a failure), or all
# backends that are known. Looked up anew for each run.
check_DATA = tests/backends.txt
CLEANFILES += tests/backends.txt
.PHONY: look-for-backends
tests/backends.txt: tests/harness/list_backends $(check_LTLIBRARIES) look-for-backends
	$(AM_V_GEN)$(AM_TESTS_ENVIRONMENT) srcdir='$(srcdir)' \
		$(EMULATOR) tests/harness/list_backends "$$SHARDRT_TEST_BACKENDS" > $@.tmp
	$(AM_V_at)mv $@.tmp $@

# An object of the first test program waits for it, so that make begins with it: an OpenCL driver compiles its kernels for
# half a minute, on one core.
tests/harness/always_fails-always_fails.$(OBJEXT): | tests/backends.txt

# The files of the tarball, for tests that read the sources: a build in the source folder adds others there.
check_DATA += tests/sources.txt
CLEANFILES += tests/sources.txt
tests/sources.txt: Makefile
	$(AM_V_GEN)printf '%s\n' $(sort $(patsubst $(srcdir)/%,%,$(DISTFILES))) > $@.tmp
	$(AM_V_at)mv $@.tmp $@

clean-local:
	rm -rf tests/cache tests/cores

.PHONY: check-long
check-long:
	SRT_PATIENCE=$${SRT_PATIENCE:-1} \
		$(MAKE) $(AM_MAKEFLAGS) check TESTS='$(LONG_TESTS) $(LONG_DEVICE_TESTS) $(DEVICE_TESTS)' SRT_TEST_LONG=1
if HAVE_CUDA
	$(MAKE) $(AM_MAKEFLAGS) check-cuda SRT_TEST_DEVICES=all
endif

.PHONY: check-threads
check-threads:
	SRT_TEST_WORLDS=largest $(MAKE) $(AM_MAKEFLAGS) check TESTS='$(THREAD_TESTS)' \
		check_PROGRAMS='$(THREAD_TESTS_NEED) $(filter $(THREAD_TESTS:.sh=),$(check_PROGRAMS))'

# Tests of jobs of several nodes and of other launchers: hosts are network namespaces, which need root.
.PHONY: check-cluster
check-cluster:
	$(MAKE) $(AM_MAKEFLAGS) check TESTS='$(CLUSTER_TESTS)'

# With ASan and UBSan: each path of the code once. What is left out compares results of code that other tests run, or
# reads the sources.
.PHONY: check-sanitized
check-sanitized:
	SRT_TEST_WORLDS=largest SHARDRT_TEST_BACKENDS=cpu $(MAKE) $(AM_MAKEFLAGS) check \
		TESTS='$(filter-out $(UNSANITIZED_TESTS),$(TESTS))' \
		check_PROGRAMS='$(UNSANITIZED_TESTS_NEED) $(filter-out $(UNSANITIZED_TESTS:.sh=),$(check_PROGRAMS))'

# In a tarball that is built without optional packages: what their absence, or the installation, can change. The bits of
# all kernels, and of the engine's strategies, are those of the compiler.
DIST_TESTS = \
	$(filter-out $(DIALECT_TESTS),$(POLICY_TESTS)) \
	tests/base/test_config \
	tests/collectives/test_bootstrap \
	tests/collectives/test_collectives.sh \
	tests/engine/test_checkpoint.sh \
	tests/engine/test_engine.sh \
	tests/engine/test_flat.sh \
	tests/engine/test_null_arguments \
	tests/harness/test_harness.sh \
	tests/kernels/test_conformance \
	tests/models/test_gpt.sh \
	tests/tools/test_ckpt.sh \
	tests/tools/test_ckpt_sharded.sh \
	tests/tools/test_info.sh \
	tests/tools/test_install.sh \
	tests/tools/test_man.sh \
	tests/tools/test_shardrun.sh \
	tests/tools/test_train_resume.sh
DIST_TESTS_NEED = \
	tests/collectives/test_half_sums \
	tests/engine/test_checkpoint_files \
	tests/engine/test_engine_values \
	tests/engine/test_file \
	tests/engine/test_save_folder \
	tests/engine/test_unit_buffers \
	tests/harness/always_fails \
	tests/harness/list_backends
.PHONY: check-dist
check-dist:
	SRT_TEST_WORLDS=largest SHARDRT_TEST_BACKENDS=cpu $(MAKE) $(AM_MAKEFLAGS) distcheck TESTS='$(DIST_TESTS)' \
		check_PROGRAMS='$(DIST_TESTS_NEED) $(filter $(DIST_TESTS:.sh=),$(check_PROGRAMS))'

# The cuda backend over the fake driver (tests/fakes/fake_cuda/): the tests of devices, kernels and collectives, and a few above,
# with SRT_TEST_DEVICES=all all.
.PHONY: check-cuda
check-cuda:
	SHARDRT_TEST_BACKENDS=fakecuda $(MAKE) $(AM_MAKEFLAGS) check \
		TESTS='$(filter-out $(if $(filter all,$(SRT_TEST_DEVICES)),,$(LEFT_OUT_fakecuda)),$(DEVICE_TESTS))'

# The backend late (tests/fakes/backend_late/): the tests that run on any device, in an order of TOY_SEED.
.PHONY: check-late
check-late:
	SHARDRT_TEST_BACKENDS=late $(MAKE) $(AM_MAKEFLAGS) check TESTS='$(DEVICE_TESTS)'

# A build for another processor, under an emulator that runs one program and not what it starts: all tests that are
# programs, on the cpu: make check-emulated EMULATOR='qemu-aarch64 -L /usr/aarch64-linux-gnu'
EMULATED_TESTS = $(PROGRAM_TESTS) $(DEVICE_PROGRAM_TESTS)
.PHONY: check-emulated
check-emulated:
	SHARDRT_TEST_BACKENDS=cpu $(MAKE) $(AM_MAKEFLAGS) check TESTS='$(EMULATED_TESTS)' \
		check_PROGRAMS='tests/harness/list_backends $(EMULATED_TESTS)'
