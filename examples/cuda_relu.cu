/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernels of cuda_kernel.c: nvcc -fatbin -arch=sm_90 cuda_relu.cu -o cuda_relu.fatbin */
#ifdef __cplusplus
extern "C" {
#endif

__global__ void relu(float *y, const float *x, unsigned nelem)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < nelem)
		y[i] = x[i] > 0.0f ? x[i] : 0.0f;
}

__global__ void relu_backward(float *dx, const float *dy, const float *y, unsigned nelem)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < nelem)
		dx[i] = y[i] > 0.0f ? dy[i] : 0.0f;
}

#ifdef __cplusplus
}
#endif
