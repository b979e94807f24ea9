/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The buffers of a model (replay.h). Each rank has its own: floats on the device, in one piece of
 * memory that a broadcast copies from rank 0 to all, as DDP does it; integers on the host.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/golden/replay.h"
#include "tests/harness/half.h"

#define BUFFER_ALIGN 64

/* The dtype of a buffer: as recorded, or as FSDP1 casts it. */
static srt_status_t find_dtype(const replay_t *r, const json_t *spec, srt_dtype_t *dtype)
{
	srt_unit_types_t types = SRT_UNIT_TYPES_INIT;
	const char *text = golden_text(spec, "dtype");

	*dtype = SRT_I64;
	if (text != NULL && !strcmp(text, srt_dtype_name(SRT_I64)))
		return SRT_OK;
	if (!golden_dtype(text, dtype))
		return srt_fail(SRT_ERR_FORMAT, "a buffer is neither of floats nor i64");
	SRT_TRY(srt_precision_resolve(&r->root_precision, *dtype, &types));
	if (types.buffer != SRT_DTYPE_NONE)
		*dtype = types.buffer;
	return SRT_OK;
}

static srt_status_t write_floats(replay_t *r, srt_view_t view, const float *x, size_t n)
{
	void *stored = srt_calloc(n + 1, sizeof(float), "values");
	srt_status_t status;

	if (stored == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (size_t i = 0; i < n; i++)
		half_put(view.dtype, stored, i, x[i]);
	status = srt_buffer_copy_from_host(view.buffer, view.offset, stored,
					   n * srt_dtype_bits(view.dtype) / 8, r->stream);
	free(stored);
	return status;
}

static srt_status_t read_floats(replay_t *r, srt_view_t view, float *x, size_t n)
{
	void *stored = srt_calloc(n + 1, sizeof(float), "values");
	srt_status_t status;

	if (stored == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	status = srt_buffer_copy_to_host(stored, view.buffer, view.offset,
					 n * srt_dtype_bits(view.dtype) / 8, r->stream);
	for (size_t i = 0; i < n && status == SRT_OK; i++)
		x[i] = half_get(view.dtype, stored, i);
	free(stored);
	return status;
}

static srt_status_t read_integers(const srt_safetensors_t *file, const char *key, size_t n,
				  int64_t *x)
{
	const srt_safetensors_tensor_t *t = srt_safetensors_find(file, key);

	if (t == NULL || t->dtype != SRT_I64 || t->nelem != n)
		return srt_fail(SRT_ERR_FORMAT, "'%s' is not there as i64 with %zu elements", key,
				n);
	return srt_safetensors_read(file, t, 0, t->nbytes, x);
}

/* The recorded initial values, cast once. */
static srt_status_t set_initial(replay_t *r, const replay_buffer_t *b)
{
	srt_status_t status;
	float *x;

	if (b->integers != NULL)
		return read_integers(r->golden->init, b->name, b->nelem, b->integers);
	SRT_TRY(golden_floats(r->golden->init, b->name, b->nelem, &x));
	status = write_floats(r, b->view, x, b->nelem);
	free(x);
	return status;
}

static srt_status_t describe(replay_t *r, const json_t *spec, replay_buffer_t *b, size_t *nbytes)
{
	const json_t *size;
	size_t i;

	b->name = golden_text(spec, "name");
	if (b->name == NULL)
		return srt_fail(SRT_ERR_FORMAT, "a buffer has no name");
	b->nelem = 1;
	json_array_foreach(json_object_get(spec, "shape"), i, size)
	{
		b->nelem *= (size_t)json_integer_value(size);
	}
	SRT_TRY(find_dtype(r, spec, &b->dtype));
	if (b->dtype == SRT_I64) {
		b->integers = srt_calloc(b->nelem + 1, sizeof(*b->integers), b->name);
		return b->integers != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;
	}
	b->view = srt_view(NULL, *nbytes, b->dtype);
	*nbytes += (b->nelem * sizeof(float) + BUFFER_ALIGN - 1) / BUFFER_ALIGN * BUFFER_ALIGN;
	return SRT_OK;
}

/* DDP's broadcast: the memory as it is, whatever the dtypes of its parts. */
static srt_status_t create_broadcast(replay_t *r, size_t nbytes)
{
	const srt_coll_segment_t all = { .nelem = nbytes / sizeof(float) };
	srt_coll_owner_t *owners =
		srt_calloc((size_t)srt_comm_size(r->comm), sizeof(*owners), "owners");
	srt_coll_desc_t desc = { .size = sizeof(srt_coll_desc_t),
				 .kind = SRT_COLL_BROADCAST,
				 .name = "buffers",
				 .dtype = SRT_F32,
				 .full = srt_view(r->buffer_memory, 0, SRT_F32),
				 .owners = owners };
	srt_status_t status;

	if (owners == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	owners[0] = (srt_coll_owner_t){ .segments = &all, .nsegments = 1 };
	status = srt_coll_create(r->comm, &desc, &r->broadcast);
	free(owners);
	return status;
}

srt_status_t replay_buffers_create(replay_t *r)
{
	const json_t *specs = json_object_get(r->golden->json, "buffers"), *spec;
	const json_t *broadcast = json_object_get(r->golden->json, "broadcast_buffers");
	size_t nbytes = 0, i;

	r->nbuffers = json_array_size(specs);
	r->buffers = srt_calloc(r->nbuffers + 1, sizeof(*r->buffers), "buffers");
	if (r->buffers == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	json_array_foreach(specs, i, spec)
	{
		SRT_TRY(describe(r, spec, &r->buffers[i], &nbytes));
	}
	if (nbytes > 0)
		SRT_TRY(srt_buffer_create(srt_context_device(r->context),
					  srt_comm_mem_kind(r->comm), nbytes, "buffers",
					  &r->buffer_memory));
	for (i = 0; i < r->nbuffers; i++) {
		if (r->buffers[i].integers == NULL)
			r->buffers[i].view.buffer = r->buffer_memory;
		SRT_TRY(set_initial(r, &r->buffers[i]));
	}
	if (strcmp(r->golden->reference, "ddp") || json_is_false(broadcast) || nbytes == 0 ||
	    srt_comm_size(r->comm) == 1)
		return SRT_OK;
	return create_broadcast(r, nbytes);
}

void replay_buffers_destroy(replay_t *r)
{
	srt_coll_destroy(r->broadcast);
	for (size_t i = 0; r->buffers != NULL && i < r->nbuffers; i++)
		free(r->buffers[i].integers);
	free(r->buffers);
	srt_buffer_destroy(r->buffer_memory);
}

const replay_buffer_t *replay_buffer_find(const replay_t *r, const char *name)
{
	for (size_t i = 0; i < r->nbuffers; i++)
		if (!strcmp(r->buffers[i].name, name))
			return &r->buffers[i];
	return NULL;
}

/* ---- constants -------------------------------------------------------------------------- */

srt_status_t replay_buffer_fills(replay_t *r, const char *name, srt_tensor_t *row)
{
	for (size_t i = 0; i < r->nbuffers; i++) {
		replay_buffer_t *b = &r->buffers[i];

		if (strcmp(b->name, name) || (int64_t)b->nelem != srt_tensor_cols(row))
			continue;
		b->constant = row;
		return SRT_OK;
	}
	return srt_fail(SRT_ERR_FORMAT, "the case has no buffer '%s' of %lld elements", name,
			(long long)srt_tensor_cols(row));
}

srt_status_t replay_buffers_fill(replay_t *r)
{
	for (size_t i = 0; i < r->nbuffers; i++) {
		const replay_buffer_t *b = &r->buffers[i];
		srt_status_t status = SRT_OK;
		float *x;

		if (b->constant == NULL)
			continue;
		x = srt_calloc(b->nelem + 1, sizeof(*x), b->name);
		if (x == NULL)
			return SRT_ERR_OUT_OF_MEMORY;
		for (size_t k = 0; k < b->nelem && b->integers != NULL; k++)
			x[k] = (float)b->integers[k];
		if (b->integers == NULL)
			status = read_floats(r, b->view, x, b->nelem);
		if (status == SRT_OK)
			status = write_floats(r, srt_tensor_view(b->constant), x, b->nelem);
		free(x);
		SRT_TRY(status);
	}
	return SRT_OK;
}

/* ---- in training ------------------------------------------------------------------------ */

srt_status_t replay_buffers_broadcast(replay_t *r)
{
	if (r->broadcast == NULL || !r->is_reduced)
		return SRT_OK;
	SRT_TRY(srt_coll_start(r->broadcast, NULL, r->stream));
	return srt_coll_wait_readers(r->broadcast, r->stream);
}

/* BatchNorm counts the batches whose statistics it takes up, all ranks alike. */
void replay_buffers_count(replay_t *r)
{
	for (size_t i = 0; i < r->nbuffers; i++) {
		const replay_buffer_t *b = &r->buffers[i];
		const char *last = strrchr(b->name, '.');

		if (b->integers != NULL && last != NULL && !strcmp(last, ".num_batches_tracked") &&
		    !strcmp(r->model->name, "bn_mlp"))
			b->integers[0]++;
	}
}

srt_status_t replay_buffer_compare(replay_t *r, const char *key, const char *name)
{
	const replay_buffer_t *b = replay_buffer_find(r, name);
	const srt_safetensors_t *file = r->golden->expect_rank;
	float *got = NULL, *want = NULL;
	srt_status_t status;
	char ranked[160];
	int64_t *integers;

	if (b == NULL)
		return srt_fail(SRT_ERR_FORMAT, "'%s' names no buffer", key);
	snprintf(ranked, sizeof(ranked), "%s@rank%d", key, srt_context_rank(r->context));
	if (b->integers != NULL) {
		integers = srt_calloc(b->nelem + 1, sizeof(*integers), key);
		status = integers != NULL ? read_integers(file, key, b->nelem, integers) :
					    SRT_ERR_OUT_OF_MEMORY;
		if (status == SRT_OK)
			verdict_exact(r->verdict,
				      !memcmp(integers, b->integers, b->nelem * sizeof(*integers)),
				      "%s: %lld, recorded %lld", key, (long long)b->integers[0],
				      (long long)integers[0]);
		free(integers);
		return status;
	}
	got = srt_calloc(b->nelem + 1, sizeof(*got), key);
	status = got != NULL ? golden_floats(file, key, b->nelem, &want) : SRT_ERR_OUT_OF_MEMORY;
	if (status == SRT_OK)
		status = read_floats(r, b->view, got, b->nelem);
	if (status == SRT_OK)
		verdict_values(r->verdict, r->golden, ranked, got, want, b->nelem);
	free(got);
	free(want);
	return status;
}
