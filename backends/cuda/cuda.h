/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The objects of the CUDA backend. It uses the driver API only (driver.h).
 *
 * The files correspond to those of backends/opencl/.
 *
 * Functions that call the driver run with the device's context current: srt_cuda_enter() and
 * _leave() in each slot of backend.h, and on worker threads until they end.
 */
#ifndef SRT_BACKENDS_CUDA_CUDA_H
#define SRT_BACKENDS_CUDA_CUDA_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "device/backend.h"
#include "backends/common/choose.h"
#include "backends/common/scratch.h"
#include "backends/cuda/driver.h"
#include "backends/gpu/gpu.h"
#include "backends/common/selftest.h"
#include "base/fpenv.h"

#define SRT_CUDA_NDTYPES (SRT_BF16 + 1) /* rows of tables of SRT_F32, SRT_F16, SRT_BF16 */

typedef struct srt_cuda_fast srt_cuda_fast_t;

/* The kernels of SRT_COMMAND_TUNED: srt_gpu_kernel_t's, then attention's of numerics mode fast. */
enum {
	SRT_CUDA_ATTENTION_64 = SRT_GPU_KERNEL_COUNT,
	SRT_CUDA_ATTENTION_128,
	SRT_CUDA_ATTENTION_Q_64,
	SRT_CUDA_ATTENTION_Q_128,
	SRT_CUDA_ATTENTION_KV_64,
	SRT_CUDA_ATTENTION_KV_128,
	SRT_CUDA_TUNED_COUNT
};

/* The tuned kernels of the device (tuned.c). */
typedef struct srt_cuda_tuning {
	bool wanted;   /* 0: use the portable kernels */
	int nunits;    /* multiprocessors */
	int tile, cut; /* forced during the self-test (srt_gpu_t) */

	CUmodule modules[SRT_CUDA_NDTYPES];
	CUfunction functions[SRT_CUDA_NDTYPES][SRT_CUDA_TUNED_COUNT];
} srt_cuda_tuning_t;

/* A portable kernel. */
typedef struct srt_cuda_entry {
	CUfunction function;
	unsigned nthreads; /* of a block */
	unsigned nblocks;  /* of a group, side by side: blockIdx.y */
} srt_cuda_entry_t;

typedef struct srt_cuda_device {
	const srt_host_services_t *host;
	const srt_cuda_driver_t *drv;
	CUdevice id;
	CUcontext context;
	bool is_native; /* the context is the program's, else the primary one */
	char name[SRT_CANDIDATE_NAME_NBYTES];
	unsigned char uuid[16]; /* as srt_candidate_t's */
	char bus[16];
	int major, minor; /* compute capability */
	size_t mem_nbytes;
	size_t max_pitch; /* of a copy of rows */
	int priority_low,
		priority_high; /* least and most urgent; the latter is the lesser number */

	CUstream stream;      /* zeroes allocations */
	pthread_mutex_t lock; /* of the portable kernels: */
	CUmodule modules[SRT_CUDA_NDTYPES];
	srt_cuda_entry_t entries[SRT_CUDA_NDTYPES][SRT_K_COUNT];

	srt_selftest_t selftest;
	srt_cuda_fast_t *fast; /* products of numerics mode fast, or NULL */
	srt_cuda_tuning_t tuning;

	srt_scratch_owner_t scratch;
} srt_cuda_device_t;

typedef struct srt_cuda_mem {
	/* The device's address. 0: host memory that the driver refused to register; the driver
	 * copies it through its pinned memory. */
	CUdeviceptr address;
	unsigned char *host; /* NULL: device memory */
	size_t nbytes;
	bool wrapped; /* the backend must not free the memory */
} srt_cuda_mem_t;

typedef struct srt_cuda_stream {
	srt_cuda_device_t *device;
	CUstream queue;
	CUevent idle; /* for waits that sleep */
	char name[32];
	bool is_selftest;      /* runs kernels before they are tested */
	srt_scratch_t scratch; /* of tuned kernels and cuBLASLt */
	bool is_reserved;      /* srt_stream_reserve() requested `reserved` bytes, possibly 0 */
	size_t reserved;
	bool no_workspace;                        /* the workspace of cuBLASLt did not fit */
	struct srt_cuda_descriptors *descriptors; /* of cuBLASLt, or NULL */
} srt_cuda_stream_t;

/* The tables of backend.h, in the files named. */
extern const srt_backend_device_ops_t srt_cuda_device_ops; /* device.c */
extern const srt_backend_mem_ops_t srt_cuda_mem_ops;       /* memory.c */
extern const srt_backend_stream_ops_t srt_cuda_stream_ops; /* stream.c */

/* backends/cuda/nccl_comm.c, in the same module if it is built with NCCL. */
extern const srt_backend_comm_ops_t srt_nccl_comm_ops;

/* context.c. Slots enter and leave of backend.h. */
int srt_cuda_push_context(void *device);
void srt_cuda_pop_context(void *device);
/* Makes the context current and sets the floating-point environment, and back. On failure the next
 * driver call returns the error. */
typedef struct srt_cuda_scope {
	srt_cuda_device_t *device;
	srt_fpenv_t env;
	bool entered;
} srt_cuda_scope_t;
srt_cuda_scope_t srt_cuda_enter(srt_cuda_device_t *device);
void srt_cuda_leave(srt_cuda_scope_t scope);

/* list.c */
extern const srt_candidates_t srt_cuda_candidates;
/* Whether kernels for a list of targets, "sm_90,compute_90", run on a device. */
bool srt_cuda_targets_cover(const char *targets, int major, int minor);

/* kernels.c. The entry of a portable kernel; its image is loaded at the first call for a dtype.
 * Thread-safe; the context is current. */
srt_status_t srt_cuda_entry(srt_cuda_device_t *device, srt_kernel_id_t kernel, srt_dtype_t dtype,
			    srt_cuda_entry_t *entry);
/* Loads an image of images.h; fails with a sentence about `what`. */
srt_status_t srt_cuda_module_load(srt_cuda_device_t *device, const unsigned char *image,
				  const char *what, CUmodule *module);
void srt_cuda_kernels_free(srt_cuda_device_t *device);

/* work.c. Slot of backend.h. */
srt_status_t srt_cuda_submit(void *stream, const srt_command_t *command);

/* launch.c. Submits a kernel to the driver's stream: SRT_COMMAND_KERNEL or SRT_COMMAND_TUNED. */
srt_status_t srt_cuda_launch(srt_cuda_stream_t *stream, const srt_command_t *command);
/* A kernel of SRT_COMMAND_TUNED. */
const srt_gpu_kernel_info_t *srt_cuda_tuned_info(int kernel);
/* The device address of a binding, scratch included; 0 = absent. */
CUdeviceptr srt_cuda_address(const srt_cuda_stream_t *stream, const srt_binding_t *binding);

/* tuned.c. Reads SHARDRT_CUDA_TUNED and tests the tuned kernels of SRT_F32; those of 16-bit types
 * are tested before their first launch. If they fail, the portable kernels are used, or the device
 * is refused if the variable names the tuned ones. With the context current. */
srt_status_t srt_cuda_tuned_setup(srt_cuda_device_t *device);
void srt_cuda_tuned_free(srt_cuda_device_t *device);
/* Begins the plan of a product or attention, and provides its scratch. It uses the tuned kernels,
 * or the portable ones if no tuned kernel supports the command. */
srt_status_t srt_cuda_plan(srt_cuda_stream_t *stream, const srt_command_t *command,
			   srt_gpu_plan_t *plan);
/* Slot of backend.h. */
size_t srt_cuda_command_scratch(void *device, const srt_command_t *command);

#endif
