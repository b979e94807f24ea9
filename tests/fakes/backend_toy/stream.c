/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams of the toy device. It has no queues of a driver, so submit() does the work at once, on
 * the thread that the library has for the stream, after a random delay: copies, and the portable
 * kernels in the form that kernels/cpu.c makes of them for this processor (a real device compiles
 * kernels/ for itself). Order, host functions, events and failures are the library's.
 */
#include <string.h>
#include <time.h>

#include "tests/fakes/backend_toy/toy.h"

static unsigned char *at(const srt_binding_t *binding)
{
	const toy_mem_t *mem = binding->mem;

	return mem != NULL ? mem->bytes + binding->offset : NULL;
}

/* One command in four comes late. */
static void delay(toy_stream_t *stream)
{
	uint32_t r = stream->random = stream->random * 1664525u + 1013904223u;
	uint32_t limit = stream->device->delay_us;

	if (limit && r >> 30 == 0)
		nanosleep(&(struct timespec){ .tv_nsec = (long)((r >> 8) % limit) * 1000 }, NULL);
}

static void run_copy(const srt_command_t *command)
{
	const srt_copy_args_t *rows = &command->copy;

	for (size_t i = 0; i < rows->nrows; i++)
		memcpy(at(&command->bindings[0]) + i * rows->dst_pitch,
		       at(&command->bindings[1]) + i * rows->src_pitch, rows->width);
}

static void run_kernel(const toy_stream_t *stream, const srt_command_t *command)
{
	srt_kernel_cpu_fn *run =
		srt_kernel_cpu(command->kernel, command->dtype, stream->device->isa);
	unsigned char *places[SRT_COMMAND_MAX_BINDINGS];

	for (int i = 0; i < command->nbindings; i++)
		places[i] = at(&command->bindings[i]);
	run(places, command->args, 0, command->ngroups);
}

static srt_status_t stream_submit(void *s, const srt_command_t *command)
{
	toy_stream_t *stream = s;
	srt_command_t kernels[SRT_COMMAND_MAX_KERNELS];

	delay(stream);
	switch ((srt_command_kind_t)command->kind) {
	case SRT_COMMAND_KERNEL:
	case SRT_COMMAND_MATMUL:
	case SRT_COMMAND_ATTENTION:
	case SRT_COMMAND_ATTENTION_BACKWARD:
		for (int i = 0, n = srt_command_expand(command, kernels); i < n; i++)
			run_kernel(stream, &kernels[i]);
		return SRT_OK;
	case SRT_COMMAND_COPY:
		run_copy(command);
		return SRT_OK;
	case SRT_COMMAND_ZERO:
		memset(at(&command->bindings[0]), 0, command->bytes.nbytes);
		return SRT_OK;
	case SRT_COMMAND_UPLOAD:
		memcpy(at(&command->bindings[0]), command->bytes.host, command->bytes.nbytes);
		return SRT_OK;
	case SRT_COMMAND_NATIVE:
		return command->native.fn(NULL, command->native.arg);
	default:
		return stream->device->host->fail(SRT_ERR_INVALID_ARGUMENT,
						  "the toy device has no command %d",
						  command->kind);
	}
}

static srt_status_t stream_read(void *stream, void *dst, void *mem, size_t offset, size_t nbytes)
{
	(void)stream;
	memcpy(dst, at(&(srt_binding_t){ mem, offset }), nbytes);
	return SRT_OK;
}

static srt_status_t stream_create(void *dev, int priority, const char *name, void **out)
{
	toy_device_t *device = dev;
	toy_stream_t *stream = device->host->alloc(sizeof(*stream));

	(void)priority;
	(void)name;
	if (stream == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	stream->device = device;
	stream->random =
		(device->seed ^ (atomic_fetch_add(&device->nstreams, 1) + 1) * 2654435761u) | 1;
	*out = stream;
	return SRT_OK;
}

static void stream_destroy(void *s)
{
	toy_stream_t *stream = s;

	stream->device->host->free(stream);
}

const srt_backend_stream_ops_t toy_stream_ops = {
	.create = stream_create,
	.destroy = stream_destroy,
	.submit = stream_submit,
	.read = stream_read,
};
