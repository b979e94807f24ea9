/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The self-test of a device, through its backend's own tables:
 *
 *   selftest.c        the portable kernels on their fixed inputs against the digests compiled in
 *                     (kernels/selftest.h)
 *   selftest_tuned.c  the tuned matrix product and attention against the portable kernels
 *
 * Both are made for SRT_F32 when a device is opened, and for 16 bits, whose code may not be there
 * yet, before the first use. Each module carries its own copy.
 */
#ifndef SRT_BACKENDS_COMMON_SELFTEST_H
#define SRT_BACKENDS_COMMON_SELFTEST_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "device/backend.h"
#include "base/fpenv.h"
#include "kernels/cases.h"

typedef struct srt_selftest {
	/* The backend's, set before srt_selftest_init(). */
	const srt_host_services_t *host;
	const srt_backend_mem_ops_t *mem;
	const srt_backend_stream_ops_t *stream;
	void *device;
	/* NULL ok. Called with a new stream: what it runs is not tested first. */
	void (*mark_stream)(void *stream);
	char what[192];     /* "OpenCL device \"Name\"" */
	const char *remedy; /* that a user may try: "another driver or SHARDRT_X" */
	bool exact;         /* other bits refuse the device; else they are logged */

	/* Of the tuned versions, if there are any. */
	const char
		*variable; /* of the configuration, names their form. NULL: they are the library's
			       * code, and other bits of SRT_F32 refuse the device in exact mode */
	/* NULL ok. Done first: what the kernels of the type need. */
	srt_status_t (*prepare)(void *device, srt_dtype_t dtype);
	/* Forms of the product to be tested one by one: ntiles, then forced (tile from 1 on; cut: 1
	 * no, 2 yes), and at the end 0, 0. */
	int ntiles;
	void (*force)(void *device, int tile, int cut);
	bool takes_mask; /* attention with a mask of bytes is tuned too */
	bool is_sure;    /* the kernels are known to run: a slot that fails is an error always */

	/* The self-test's. */
	pthread_mutex_t lock; /* held while something is tested */
	atomic_bool passed[SRT_KERNEL_NDTYPES][SRT_K_COUNT];
	atomic_int tuned[SRT_KERNEL_NDTYPES]; /* 1 passed, -1 did not, 0 not tested */
} srt_selftest_t;

void srt_selftest_init(srt_selftest_t *t);
void srt_selftest_destroy(srt_selftest_t *t);

/* A stream of a test, on a thread that may call the driver in the floating-point environment that
 * kernels need, until the stream is closed. */
typedef struct srt_selftest_stream {
	void *stream;
	srt_fpenv_t env;
	bool entered;
} srt_selftest_stream_t;
srt_status_t srt_selftest_stream_open(const srt_selftest_t *t, srt_selftest_stream_t *s);
void srt_selftest_stream_close(const srt_selftest_t *t, srt_selftest_stream_t *s);

/* Bytes to and from memory of the device, on a stream of the test; done on return. */
srt_status_t srt_selftest_write(const srt_selftest_t *t, void *stream, void *mem, size_t offset,
				const void *bytes, size_t nbytes);
srt_status_t srt_selftest_read(const srt_selftest_t *t, void *stream, void *bytes, void *mem,
			       size_t nbytes);

/* Tests every kernel of a type. A failure refuses the device in exact mode, else it is logged. */
srt_status_t srt_selftest_all(srt_selftest_t *t, srt_dtype_t dtype);
/* Tests every kernel of a 16-bit type that has not passed, so that its first use does not. What
 * fails is left to that. Thread-safe. */
void srt_selftest_type(srt_selftest_t *t, srt_dtype_t dtype);
/* Before a launch on a stream that is not marked: the same for one kernel, if it is a 16-bit one
 * that has not passed. A failure refuses this launch and every later one. Thread-safe. */
srt_status_t srt_selftest_kernel(srt_selftest_t *t, srt_kernel_id_t kernel, srt_dtype_t dtype);

/* Tests the tuned versions in a type, if that has not been done. If they fail, they are not used,
 * which is logged, or an error: `exact` and `variable` above. Thread-safe. */
srt_status_t srt_selftest_tuned(srt_selftest_t *t, srt_dtype_t dtype);
/* Whether the tuned versions in a type are to be used; the first call for a type tests them. */
bool srt_selftest_has_tuned(srt_selftest_t *t, srt_dtype_t dtype);

#endif
