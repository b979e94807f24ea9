# SPDX-License-Identifier: BSD-3-Clause
RANK_TESTS += tests/tensors/test_sharded_tensor
# Run by test_sharded_tensor.sh.
check_PROGRAMS += \
	tests/tensors/test_sharded_files \
	tests/tensors/test_sharded_guide \
	tests/tensors/test_sharded_layers \
	tests/tensors/test_sharded_optim
libfixtures_a_SOURCES += tests/tensors/tensor_case.c tests/tensors/tensor_case.h
