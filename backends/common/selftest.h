/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The self-test of a device, through its backend's own tables:
 *
 *   selftest.c        the portable kernels on fixed inputs against compiled-in digests
 *                     (kernels/cases/selftest.h)
 *   selftest_tuned.c  the tuned matrix product and attention against the portable kernels
 *
 * Both run for SRT_F32 when a device is opened, and for 16-bit types, whose code may not be loaded
 * yet, before the first use. With SHARDRT_SELFTEST=no everything counts as passed. Each module
 * links a copy.
 */
#ifndef SRT_BACKENDS_COMMON_SELFTEST_H
#define SRT_BACKENDS_COMMON_SELFTEST_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "device/backend.h"
#include "base/fpenv.h"
#include "kernels/cases/cases.h"

typedef struct srt_selftest {
	/* Set by the backend before srt_selftest_init(). */
	const srt_host_services_t *host;
	const srt_backend_mem_ops_t *mem;
	const srt_backend_stream_ops_t *stream;
	void *device;
	/* NULL ok. Marks a new stream of the self-test: its launches are not tested first. */
	void (*mark_stream)(void *stream);
	char what[192];     /* "OpenCL device \"Name\"" */
	const char *remedy; /* advice in messages: "another driver or SHARDRT_X" */
	bool exact;         /* a failure refuses the device; else it is logged */

	/* For the tuned versions, if there are any. */
	const char
		*variable; /* of the configuration, names their form. NULL: they are the library's
			       * code, and other bits of SRT_F32 refuse the device in exact mode */
	/* NULL ok. Called first: loads the kernels of the type. */
	srt_status_t (*prepare)(void *device, srt_dtype_t dtype);
	/* Forms of the product to be tested one by one: ntiles, then forced (tile from 1 on; cut: 1
	 * no, 2 yes), and at the end 0, 0. */
	int ntiles;
	void (*force)(void *device, int tile, int cut);
	bool takes_mask; /* attention with a mask of bytes is tuned too */
	bool is_sure;    /* the kernels run on this device: a failing slot is always an error */

	/* Set by the self-test. */
	bool is_off;          /* SHARDRT_SELFTEST=no */
	pthread_mutex_t lock; /* held during a test */
	atomic_bool passed[SRT_KERNEL_NDTYPES][SRT_K_COUNT];
	atomic_int tuned[SRT_KERNEL_NDTYPES]; /* 1 passed, -1 did not, 0 not tested */
} srt_selftest_t;

void srt_selftest_init(srt_selftest_t *t);
void srt_selftest_destroy(srt_selftest_t *t);

/* A stream of a test. Until it is closed, the thread may call the driver, in the floating-point
 * environment of kernels. */
typedef struct srt_selftest_stream {
	void *stream;
	srt_fpenv_t env;
	bool entered;
} srt_selftest_stream_t;
srt_status_t srt_selftest_stream_open(const srt_selftest_t *t, srt_selftest_stream_t *s);
void srt_selftest_stream_close(const srt_selftest_t *t, srt_selftest_stream_t *s);

/* Copy bytes to and from device memory, on a stream of the test; complete on return. */
srt_status_t srt_selftest_write(const srt_selftest_t *t, void *stream, void *mem, size_t offset,
				const void *bytes, size_t nbytes);
srt_status_t srt_selftest_read(const srt_selftest_t *t, void *stream, void *bytes, void *mem,
			       size_t nbytes);

/* Tests every kernel of a type. A failure refuses the device in exact mode, else it is logged. */
srt_status_t srt_selftest_all(srt_selftest_t *t, srt_dtype_t dtype);
/* Tests every kernel of a 16-bit type that is not tested yet, so that its first use does not. The
 * first use reports a failure. Thread-safe. */
void srt_selftest_type(srt_selftest_t *t, srt_dtype_t dtype);
/* Tests one 16-bit kernel that is not tested yet; called before a launch on an unmarked stream. A
 * failure refuses this launch and every later one. Thread-safe. */
srt_status_t srt_selftest_kernel(srt_selftest_t *t, srt_kernel_id_t kernel, srt_dtype_t dtype);

/* Tests the tuned versions of a type once. If they fail, they are not used; this is logged or an
 * error, see `exact` and `variable` above. Thread-safe. */
srt_status_t srt_selftest_tuned(srt_selftest_t *t, srt_dtype_t dtype);
/* Whether to use the tuned versions of a type; the first call for a type tests them. */
bool srt_selftest_has_tuned(srt_selftest_t *t, srt_dtype_t dtype);

#endif
