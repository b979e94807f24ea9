# SPDX-License-Identifier: BSD-3-Clause
#
# Built here by `make check` for tests/engine/test_guide.sh, and by tests/tools/test_install.sh against the installed
# library, as a user would.
EXAMPLES = \
	examples/grpo \
	examples/train_all \
	examples/train_llama \
	examples/train_modules \
	examples/train_own \
	examples/train_tape
check_PROGRAMS += $(EXAMPLES)
$(EXAMPLES): private AM_LDFLAGS += -Wl,-rpath,'$$ORIGIN/../.libs'
examples_grpo_LDADD = libshardrt-models.la $(SRT_LIB) -lm
examples_train_all_LDADD = $(SRT_LIB)
examples_train_llama_LDADD = libshardrt-models.la $(SRT_LIB)
examples_train_modules_LDADD = $(SRT_LIB)
examples_train_own_LDADD = $(SRT_LIB) -lm
examples_train_tape_LDADD = libshardrt-models.la $(SRT_LIB)

# cuda_kernel.c and opencl_kernel.c need a driver's library, autograd.cc a C++ compiler: built by test_install.sh alone.
exampledir = $(docdir)/examples
dist_example_DATA = \
	examples/autograd.cc \
	examples/cuda_kernel.c \
	examples/cuda_relu.cu \
	examples/grpo.c \
	examples/opencl_kernel.c \
	examples/relu_model.h \
	examples/train_all.c \
	examples/train_llama.c \
	examples/train_modules.c \
	examples/train_own.c \
	examples/train_tape.c
