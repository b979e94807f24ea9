# SPDX-License-Identifier: BSD-3-Clause
SCRIPT_TESTS += $(POLICY_TESTS)
# Tests of the sources and of what a compiler made of them: CI runs them in one phase.
POLICY_TESTS = \
	$(DIALECT_TESTS) \
	tests/policy/test_abi.sh \
	tests/policy/test_clients.sh \
	tests/policy/test_cycles.sh \
	tests/policy/test_docs.sh \
	tests/policy/test_format.sh \
	tests/policy/test_headers.sh \
	tests/policy/test_layers.sh \
	tests/policy/test_parity.sh \
	tests/policy/test_porting.sh \
	tests/policy/test_reliability.sh \
	tests/policy/test_symbols.sh \
	tests/policy/test_words.sh
EXTRA_DIST += \
	scripts/abi.sh \
	tests/policy/cites.awk \
	tests/policy/clients.awk \
	tests/policy/cuda_code.awk \
	tests/policy/cycles.awk \
	tests/policy/functions.awk \
	tests/policy/inlines.awk \
	tests/policy/layers.awk \
	tests/policy/libshardrt.abi \
	tests/policy/opencl_names.awk \
	tests/policy/rooms.awk \
	tests/policy/rows.awk \
	tests/policy/slots.awk \
	tests/policy/test_dialect.sh \
	tests/policy/words.awk
# Describes the binary interface of the library as it is built, by gcc, in the folder of the sources.
.PHONY: update-abi
update-abi: libshardrt.la
	$(AM_V_GEN)$(SHELL) $(srcdir)/scripts/abi.sh .libs/libshardrt.so $(srcdir) > tests/libshardrt.abi
	$(AM_V_at)mv tests/libshardrt.abi $(srcdir)/tests/policy/libshardrt.abi
# Takes a minute, and the build does not change its result: `make check DIALECT_TESTS=` leaves it out.
DIALECT_TESTS = tests/policy/test_dialect.sh
