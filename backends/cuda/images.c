/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fatbins of local.mk, each as an array of images.h. .incbin includes the file, relative to the
 * top of the build folder, where the compiler runs.
 */
#include "backends/cuda/images.h"

#define IMAGE(name)                                                                                \
	__asm__(".section .rodata\n"                                                               \
		".balign 64\n"                                                                     \
		".globl srt_cuda_image_" #name "\n"                                                \
		".hidden srt_cuda_image_" #name "\n"                                               \
		"srt_cuda_image_" #name ":\n"                                                      \
		".incbin \"backends/cuda/" #name ".fatbin\"\n"                                     \
		".previous\n")

IMAGE(portable_f32);
IMAGE(portable_f16);
IMAGE(portable_bf16);
IMAGE(tuned_f32);
IMAGE(tuned_f16);
IMAGE(tuned_bf16);
