/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All portable kernels, for compilers that take them in one unit: kernels/cpu.c, and
 * backends/cuda/portable.cu. A family more is a line here and one of KERNEL_FAMILIES in
 * local.mk, from which backends/opencl makes its sources; tests/policy/test_dialect.sh compares
 * the two with the folder.
 */
#include "kernels/activation.k"
#include "kernels/adam8.k"
#include "kernels/attention.k"
#include "kernels/batchnorm.k"
#include "kernels/bins.k"
#include "kernels/columns.k"
#include "kernels/coo.k"
#include "kernels/elementwise.k"
#include "kernels/embedding.k"
#include "kernels/glu.k"
#include "kernels/layernorm.k"
#include "kernels/matmul.k"
#include "kernels/optim.k"
#include "kernels/quantize.k"
#include "kernels/random.k"
#include "kernels/reduce.k"
#include "kernels/rmsnorm.k"
#include "kernels/rotary.k"
#include "kernels/rows.k"
#include "kernels/scaler.k"
#include "kernels/strided.k"
