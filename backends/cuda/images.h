/* SPDX-License-Identifier: BSD-3-Clause */
/* The device code of nvcc, as cuModuleLoadData expects it. Loaded by kernels.c and tuned.c. */
#ifndef SRT_BACKENDS_CUDA_IMAGES_H
#define SRT_BACKENDS_CUDA_IMAGES_H

#define SRT_CUDA_IMAGE(name)                                                                       \
	extern const unsigned char srt_cuda_image_##name[] __attribute__((visibility("hidden")))
SRT_CUDA_IMAGE(portable_f32);
SRT_CUDA_IMAGE(portable_f16);
SRT_CUDA_IMAGE(portable_bf16);
SRT_CUDA_IMAGE(tuned_f32);
SRT_CUDA_IMAGE(tuned_f16);
SRT_CUDA_IMAGE(tuned_bf16);
#undef SRT_CUDA_IMAGE

#endif
