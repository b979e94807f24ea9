/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The durations of a program's work on an NVIDIA GPU: the driver loads this library into a program
 * that runs with
 *
 *     CUDA_INJECTION64_PATH=LAUNCHES.so SRT_LAUNCHES=FILE.csv
 *
 * and it writes one row for each kernel, copy and fill at the end of the program: when it began and
 * how long it took (nanoseconds of the GPU's clock), stream, grid, block, registers, bytes of
 * shared memory (or copied, or filled) and the name. Kernels run as they do without it, side by
 * side too; a launch costs the host about a microsecond more. SRT_LAUNCHES_CUPTI names the CUPTI
 * to load; by default the loader's libcupti.so.
 *
 * CUPTI is NVIDIA's library of activity records (cupti_activity.h of the toolkit).
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <cupti.h>

#define BUFFER_NBYTES ((size_t)8 << 20)
#define ALIGN 8

#define FUNCTIONS(F)                                                                               \
	F(cuptiActivityRegisterCallbacks)                                                          \
	F(cuptiActivityEnable)                                                                     \
	F(cuptiActivityGetNextRecord)                                                              \
	F(cuptiActivityFlushAll)

static struct {
#define MEMBER(name) __typeof__(name) *name;
	FUNCTIONS(MEMBER)
#undef MEMBER
} cupti;

static FILE *out;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of out */

static void give_buffer(uint8_t **buffer, size_t *nbytes, size_t *max_records)
{
	*buffer = aligned_alloc(ALIGN, BUFFER_NBYTES);
	*nbytes = *buffer != NULL ? BUFFER_NBYTES : 0;
	*max_records = 0;
}

static void write_kernel(const CUpti_ActivityKernel9 *k)
{
	fprintf(out, "%" PRIu64 ",%" PRIu64 ",%u,%dx%dx%d,%dx%dx%d,%u,%d,%s\n", k->start,
		k->end - k->start, k->streamId, k->gridX, k->gridY, k->gridZ, k->blockX, k->blockY,
		k->blockZ, k->registersPerThread, k->staticSharedMemory + k->dynamicSharedMemory,
		k->name != NULL ? k->name : "");
}

static void write_copy(const CUpti_ActivityMemcpy5 *c)
{
	static const char *const kinds[] = { "copy", "copy HtoD", "copy DtoH" };

	fprintf(out, "%" PRIu64 ",%" PRIu64 ",%u,,,,%" PRIu64 ",%s\n", c->start, c->end - c->start,
		c->streamId, c->bytes, kinds[c->copyKind <= 2 ? c->copyKind : 0]);
}

static void write_fill(const CUpti_ActivityMemset4 *m)
{
	fprintf(out, "%" PRIu64 ",%" PRIu64 ",%u,,,,%" PRIu64 ",fill\n", m->start,
		m->end - m->start, m->streamId, m->bytes);
}

static void take_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size,
			size_t nbytes)
{
	CUpti_Activity *record = NULL;

	(void)context, (void)stream, (void)size;
	pthread_mutex_lock(&lock);
	while (out != NULL &&
	       cupti.cuptiActivityGetNextRecord(buffer, nbytes, &record) == CUPTI_SUCCESS) {
		if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)
			write_kernel((const CUpti_ActivityKernel9 *)(const void *)record);
		else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY)
			write_copy((const CUpti_ActivityMemcpy5 *)(const void *)record);
		else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET)
			write_fill((const CUpti_ActivityMemset4 *)(const void *)record);
	}
	pthread_mutex_unlock(&lock);
	free(buffer);
}

static void finish(void)
{
	cupti.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
	pthread_mutex_lock(&lock);
	if (fclose(out))
		perror("launches");
	out = NULL; /* a buffer may still come */
	pthread_mutex_unlock(&lock);
}

static int fail(const char *what)
{
	fprintf(stderr, "launches: %s\n", what);
	return 0;
}

/* Called by the driver as it starts; 0: without this library. */
int InitializeInjection(void);
int InitializeInjection(void)
{
	static const CUpti_ActivityKind kinds[] = { CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
						    CUPTI_ACTIVITY_KIND_MEMCPY,
						    CUPTI_ACTIVITY_KIND_MEMSET };
	const char *path = getenv("SRT_LAUNCHES"), *library = getenv("SRT_LAUNCHES_CUPTI");
	void *handle = dlopen(library != NULL && *library ? library : "libcupti.so", RTLD_NOW);

	if (handle == NULL)
		return fail(dlerror());
#define FIND(name)                                                                                 \
	*(void **)&cupti.name = dlsym(handle, #name);                                              \
	if (!cupti.name)                                                                           \
		return fail("CUPTI has no function " #name);
	FUNCTIONS(FIND)
#undef FIND
	out = path != NULL ? fopen(path, "w") : NULL;
	if (out == NULL)
		return fail("SRT_LAUNCHES names no file that can be written");
	fputs("start_ns,duration_ns,stream,grid,block,registers,bytes,name\n", out);
	if (cupti.cuptiActivityRegisterCallbacks(give_buffer, take_buffer) != CUPTI_SUCCESS)
		return fail("cuptiActivityRegisterCallbacks failed");
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (cupti.cuptiActivityEnable(kinds[i]) != CUPTI_SUCCESS)
			return fail("cuptiActivityEnable failed");
	atexit(finish);
	return 1;
}
