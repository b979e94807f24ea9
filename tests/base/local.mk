# SPDX-License-Identifier: BSD-3-Clause
base_thread_tests = tests/base/test_log
PROGRAM_TESTS += \
	$(base_thread_tests) \
	tests/base/test_cache \
	tests/base/test_config \
	tests/base/test_cores \
	tests/base/test_dtype \
	tests/base/test_memory \
	tests/base/test_status \
	tests/base/test_struct
THREAD_TESTS += $(base_thread_tests)
