/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives in one call, on memory of the program and of the library: the bits are those of
 * persistent collectives on memory that peers read. Sizes: none, fewer than ranks, uneven, more
 * than one chunk. Ranks whose calls differ get a sentence. Run by test_plain.sh.
 */
#include "tests/harness/job.h"

#define OFFSET 16 /* bytes of the program's memory before a tensor */
#define LARGE 1200007
#define GUARD 0x5a

typedef struct data {
	srt_dtype_t dtype;
	size_t nelem, nbytes, part;         /* part: elements of each rank, at most */
	size_t first, mine;                 /* of `nelem`, this rank's */
	unsigned char *in, *out, *expected; /* [nbytes] */
} data_t;

static void open_data(const job_t *job, srt_dtype_t dtype, size_t nelem, data_t *d)
{
	const size_t size = (size_t)job->size, elem = srt_dtype_size(dtype);

	*d = (data_t){ .dtype = dtype, .nelem = nelem, .nbytes = nelem * elem };
	d->part = (nelem + size - 1) / size;
	d->first = (size_t)job->rank * d->part;
	d->first = d->first < nelem ? d->first : nelem;
	d->mine = nelem - d->first < d->part ? nelem - d->first : d->part;
	d->in = malloc(d->nbytes + 1);
	d->out = malloc(d->nbytes + 1);
	d->expected = malloc(d->nbytes + 1);
	CHECK_OR_DIE(d->in != NULL && d->out != NULL && d->expected != NULL);
	for (size_t i = 0; i < nelem; i++) {
		const uint64_t noise = job_noise((uint64_t)job->rank, i);
		const float value = 1.0f + (float)(noise >> 40) * 0x1p-24f;
		/* A 16-bit number of a size near 1, of which all bits vary. */
		const uint16_t half = (uint16_t)(0x3c00u | (noise & 0x3ffu));

		if (elem == 2)
			memcpy(d->in + 2 * i, &half, 2);
		else
			memcpy(d->in + 4 * i, &value, 4);
	}
}

static void close_data(data_t *d)
{
	free(d->in);
	free(d->out);
	free(d->expected);
}

/* What a persistent collective makes of the same elements. */
static void run_persistent(job_t *job, srt_coll_kind_t kind, int root, srt_reduce_op_t op,
			   const data_t *d)
{
	const size_t elem = srt_dtype_size(d->dtype), n = d->nbytes;
	srt_coll_epilogue_t epilogue = SRT_COLL_EPILOGUE_INIT;
	srt_coll_segment_t segments[64];
	srt_coll_owner_t owners[64];
	float *host[2];
	srt_buffer_t *full = job_buffer(job, n / 4 + 1, "full", &host[0]);
	srt_buffer_t *shard = job_buffer(job, d->part + 1, "shard", &host[1]);
	const srt_coll_desc_t desc = { .size = sizeof(desc),
				       .kind = kind,
				       .name = "persistent",
				       .dtype = d->dtype,
				       .full = srt_view(full, 0, d->dtype),
				       .shard = srt_view(shard, 0, d->dtype),
				       .owners = owners,
				       .root = root };
	const bool from_shard = kind == SRT_COLL_ALL_GATHER;
	srt_coll_t *coll;

	for (int r = 0; r < job->size; r++) {
		const size_t first = (size_t)r * d->part;
		const size_t left = first < d->nelem ? d->nelem - first : 0;

		segments[r] = (srt_coll_segment_t){ left > 0 ? first : 0, 0,
						    left < d->part ? left : d->part };
		if (kind == SRT_COLL_BROADCAST)
			segments[r] = (srt_coll_segment_t){ 0, 0, d->nelem };
		owners[r] = (srt_coll_owner_t){ &segments[r], 1 };
	}
	CHECK_OK_OR_DIE(srt_coll_create(job->world, &desc, &coll));
	test_put(job->stream, from_shard ? shard : full, 0,
		 d->in + (from_shard ? d->first * elem : 0), from_shard ? d->mine * elem : n);
	epilogue.divisor = op == SRT_REDUCE_AVERAGE ? (float)job->size : 1.0f;
	CHECK_OK(srt_coll_start(coll, &epilogue, job->stream));
	if (kind == SRT_COLL_REDUCE_SCATTER)
		test_get(job->stream, d->expected, shard, 0, d->mine * elem);
	else
		test_get(job->stream, d->expected, full, 0, n);
	CHECK_OK(srt_coll_wait_readers(coll, job->stream));
	CHECK_OK(srt_stream_sync(job->stream));
	srt_coll_destroy(coll);
	job_drop(full, host[0]);
	job_drop(shard, host[1]);
}

static srt_status_t call(job_t *job, srt_coll_kind_t kind, int root, srt_reduce_op_t op,
			 const data_t *d, srt_view_t whole, srt_view_t part)
{
	switch (kind) {
	case SRT_COLL_ALL_REDUCE:
		return srt_all_reduce(job->world, whole, d->nelem, op, job->stream);
	case SRT_COLL_ALL_GATHER:
		return srt_all_gather(job->world, part, whole, d->nelem, job->stream);
	case SRT_COLL_REDUCE_SCATTER:
		return srt_reduce_scatter(job->world, whole, part, d->nelem, op, job->stream);
	default:
		return srt_broadcast(job->world, whole, d->nelem, root, job->stream);
	}
}

/* Twice: the second call finds the collectives of the first. */
static void check_call(job_t *job, srt_coll_kind_t kind, int root, srt_reduce_op_t op,
		       bool of_program, data_t *d)
{
	const size_t elem = srt_dtype_size(d->dtype);
	const size_t nbytes[2] = { OFFSET + d->nbytes + 1, OFFSET + d->mine * elem + 1 };
	unsigned char *host[2];
	srt_buffer_t *buffer[2];
	srt_view_t view[2];

	run_persistent(job, kind, root, op, d);
	for (int b = 0; b < 2; b++) {
		host[b] = aligned_alloc(64, srt_align_up(nbytes[b], 64));
		CHECK_OR_DIE(host[b] != NULL);
		CHECK_OK_OR_DIE(of_program ?
					srt_buffer_wrap(job->device, host[b], nbytes[b],
							"of the program", &buffer[b]) :
					srt_buffer_create(job->device, SRT_MEM_DEVICE, nbytes[b],
							  "of the library", &buffer[b]));
		view[b] = srt_view(buffer[b], OFFSET, d->dtype);
	}
	for (int again = 0; again < 2; again++) {
		const int result = kind == SRT_COLL_REDUCE_SCATTER;
		const size_t n = result ? d->mine * elem : d->nbytes;

		for (int b = 0; b < 2; b++) {
			memset(host[b], GUARD, nbytes[b]);
			memcpy(host[b] + OFFSET, d->in + (b == 1 ? d->first * elem : 0),
			       nbytes[b] - OFFSET - 1);
			if (!of_program)
				test_put(job->stream, buffer[b], 0, host[b], nbytes[b]);
		}
		if (kind == SRT_COLL_ALL_GATHER) /* nothing of the source is in the result */
			CHECK_OK(srt_buffer_zero(buffer[0], OFFSET, d->nbytes, job->stream));
		CHECK_OK(call(job, kind, root, op, d, view[0], view[1]));
		CHECK_OK(srt_stream_sync(job->stream));
		if (!of_program)
			test_get(job->stream, host[result], buffer[result], 0, nbytes[result]);
		CHECK_MSG(memcmp(host[result] + OFFSET, d->expected, n) == 0,
			  "kind %d, root %d, op %d, %zu elements of %s, %s", (int)kind, root,
			  (int)op, d->nelem, srt_dtype_name(d->dtype),
			  of_program ? "of the program" : "of the library");
		CHECK(host[result][OFFSET - 1] == GUARD && host[result][OFFSET + n] == GUARD);
	}
	for (int b = 0; b < 2; b++) {
		srt_buffer_destroy(buffer[b]);
		free(host[b]);
	}
}

static void test_bits(job_t *job)
{
	static const srt_dtype_t dtypes[] = { SRT_F32, SRT_F16, SRT_BF16, SRT_I32 };
	const size_t sizes[] = { 0, 1, (size_t)job->size, 1000, 1003, LARGE };

	for (size_t t = 0; t < SRT_ARRAY_LEN(dtypes); t++) {
		for (size_t i = 0; i < SRT_ARRAY_LEN(sizes); i++) {
			const srt_dtype_t dtype = dtypes[t];
			const bool of_program = (t + i) % 2 == 0;
			data_t d;

			if (sizes[i] == LARGE && dtype != SRT_F32)
				continue;
			open_data(job, dtype, sizes[i], &d);
			check_call(job, SRT_COLL_ALL_GATHER, 0, SRT_REDUCE_SUM, of_program, &d);
			for (int root = 0; root < job->size && sizes[i] != LARGE; root++)
				check_call(job, SRT_COLL_BROADCAST, root, SRT_REDUCE_SUM,
					   of_program, &d);
			for (int op = 0;
			     op < (sizes[i] == LARGE ? 1 : 2) && srt_dtype_is_float(dtype); op++) {
				check_call(job, SRT_COLL_ALL_REDUCE, 0, (srt_reduce_op_t)op,
					   of_program, &d);
				check_call(job, SRT_COLL_REDUCE_SCATTER, 0, (srt_reduce_op_t)op,
					   of_program, &d);
			}
			close_data(&d);
		}
	}
}

/* More sizes than the communicator keeps, each on two streams at a time. */
static void test_many_sizes(job_t *job)
{
	srt_stream_t *streams[2] = { job->stream, NULL };
	srt_buffer_t *buffer[2];
	float *host[2];

	CHECK_OK_OR_DIE(srt_stream_create(job->device, 0, "other", &streams[1]));
	for (int s = 0; s < 2; s++)
		buffer[s] = job_buffer(job, 32, "vector", &host[s]);
	for (size_t i = 0; i < 24; i++) {
		const size_t n = 1 + i % 12;

		for (int s = 0; s < 2; s++) {
			for (size_t k = 0; k < 32; k++)
				host[s][k] = (float)(job->rank + 1 + 100 * s);
			test_put(streams[s], buffer[s], 0, host[s], 32 * sizeof(float));
			CHECK_OK(srt_all_reduce(job->world, srt_view(buffer[s], 0, SRT_F32), n,
						SRT_REDUCE_SUM, streams[s]));
		}
		for (int s = 0; s < 2; s++) {
			const int mine = job->rank + 1 + 100 * s;
			const int sum = job->size * (job->size + 1) / 2 + 100 * s * job->size;

			test_get(streams[s], host[s], buffer[s], 0, 32 * sizeof(float));
			for (size_t k = 0; k < 32; k++)
				CHECK(host[s][k] == (float)(k < n ? sum : mine));
		}
	}
	srt_stream_destroy(streams[1]);
	for (int s = 0; s < 2; s++)
		job_drop(buffer[s], host[s]);
}

/* ---- docs/embedding.md --------------------------------------------------------------------- */

#define N 1000

static void check(srt_status_t status)
{
	CHECK_OK_OR_DIE(status);
}

static void test_guide(srt_comm_t *comm, srt_device_t *device, srt_stream_t *stream)
{
	const int size = srt_comm_size(comm);
	static _Alignas(64) float v[N];
	srt_buffer_t *buffer;

	for (int i = 0; i < N; i++)
		v[i] = (float)(srt_comm_rank(comm) + 1);
	check(srt_buffer_wrap(device, v, sizeof(v), "v", &buffer));
	check(srt_all_reduce(comm, srt_view(buffer, 0, SRT_F32), N, SRT_REDUCE_SUM, stream));
	check(srt_stream_sync(stream)); /* v has the sum */
	for (int i = 0; i < N; i++)
		CHECK(v[i] == (float)(size * (size + 1) / 2));
	srt_buffer_destroy(buffer);
}

/* ---- errors ------------------------------------------------------------------------------- */

typedef enum { SIZE, OP, DTYPE, KIND, BEYOND, NONE } difference_t;

static const char *const words[] = {
	[SIZE] = " of 99 elements of f32", [OP] = "average of 100 elements of f32",
	[DTYPE] = "100 elements of bf16",  [KIND] = "srt_broadcast of 100 elements",
	[BEYOND] = "do not fit",
};

/* The call of the odd rank, or of the others. */
static srt_status_t call_odd(job_t *job, srt_comm_t *comm, srt_buffer_t *buffer, difference_t what,
			     bool is_odd)
{
	const srt_dtype_t dtype = is_odd && what == DTYPE ? SRT_BF16 : SRT_F32;
	const srt_view_t view = srt_view(buffer, 0, dtype);
	const size_t nelem = !is_odd ? 100 : what == SIZE ? 99 : what == BEYOND ? 101 : 100;

	if (is_odd && what == KIND)
		return srt_broadcast(comm, view, nelem, 0, job->stream);
	return srt_all_reduce(comm, view, nelem,
			      is_odd && what == OP ? SRT_REDUCE_AVERAGE : SRT_REDUCE_SUM,
			      job->stream);
}

/*
 * Reliability: ranks that pass different arguments to `srt_all_reduce()` and its neighbours | - |
 * an error that names both calls on all ranks, at once
 */
static void test_differences(job_t *job)
{
	const bool is_odd = job->rank == job->size - 1;
	float *host;
	srt_buffer_t *buffer = job_buffer(job, 100, "vector", &host);

	for (difference_t what = SIZE; what < NONE && job->size > 1; what++) {
		srt_comm_t *comm = job_group_of_all(job, "group");

		/* All calls are new: the same error on all ranks, and the communicator is good. */
		CHECK_STATUS(call_odd(job, comm, buffer, what, is_odd),
			     what == BEYOND ? SRT_ERR_INVALID_ARGUMENT : SRT_ERR_MISMATCH);
		CHECK_ERROR_HAS(words[what]);
		CHECK_OK(call_odd(job, comm, buffer, what, false));
		CHECK_OK(srt_stream_sync(job->stream));
		CHECK_OK(srt_comm_oob_allgather(job->world, NULL, 0, NULL));
		srt_comm_destroy(comm);
	}
	job_drop(buffer, host);
}

/* The call of the odd rank is new and that of the others is not: they start it, so the communicator
 * fails on all ranks. */
static void test_differences_later(job_t *job)
{
	const bool is_odd = job->rank == job->size - 1;
	float *host;
	srt_buffer_t *buffer = job_buffer(job, 100, "vector", &host);

	for (difference_t what = SIZE; what < NONE && job->size > 1; what++) {
		srt_comm_t *comm = job_group_of_all(job, "group");
		srt_stream_t *kept = job->stream;
		srt_status_t status;

		CHECK_OK_OR_DIE(srt_stream_create(job->device, 0, "fails", &job->stream));
		CHECK_OK(call_odd(job, comm, buffer, what, false));
		CHECK_OK(srt_stream_sync(job->stream));
		/* A failure would reach a rank whose first call is not complete. */
		CHECK_OK(srt_comm_oob_allgather(job->world, NULL, 0, NULL));
		status = call_odd(job, comm, buffer, what, is_odd);
		if (status == SRT_OK)
			status = srt_stream_sync(job->stream);
		if (is_odd && what == BEYOND && status == SRT_ERR_INVALID_ARGUMENT) {
			CHECK_ERROR_HAS(words[what]);
		} else {
			CHECK_STATUS(status, SRT_ERR_MISMATCH);
			CHECK_ERROR_HAS("barrier of \"a call with new arguments\"");
			CHECK_ERROR_HAS("srt_all_reduce, sum of 100 elements of f32");
		}
		CHECK_OK(srt_comm_oob_allgather(job->world, NULL, 0, NULL));
		srt_stream_destroy(job->stream);
		job->stream = kept;
		srt_comm_destroy(comm);
	}
	job_drop(buffer, host);
}

static void test_refused(job_t *job)
{
	float *host;
	srt_buffer_t *buffer = job_buffer(job, 8, "vector", &host);
	const srt_view_t i32 = srt_view(buffer, 0, SRT_I32), f32 = srt_view(buffer, 0, SRT_F32);

	CHECK_STATUS(srt_all_reduce(job->world, i32, 8, SRT_REDUCE_SUM, job->stream),
		     SRT_ERR_UNSUPPORTED);
	CHECK_ERROR_HAS("i32 cannot be summed over ranks");
	CHECK_STATUS(srt_all_reduce(job->world, f32, 8, (srt_reduce_op_t)7, job->stream),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("op is 7");
	CHECK_STATUS(srt_broadcast(job->world, f32, 8, job->size, job->stream),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("is not a rank of the communicator");
	CHECK_STATUS(srt_all_gather(job->world, i32, f32, 8, job->stream),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("the part is i32, the whole is f32");
	job_drop(buffer, host);
}

int main(void)
{
	job_t job;

	job_open(&job);
	test_bits(&job);
	test_many_sizes(&job);
	test_guide(job.world, job.device, job.stream);
	test_refused(&job);
	test_differences(&job);
	test_differences_later(&job);
	job_close(&job);
	return check_done();
}
