/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sequences on the cuda backend over the fake driver: work that comes again, that is different, cut
 * by what cannot be recorded, on buffers that come and go, always has the results that it has with
 * SHARDRT_GRAPHS=no; how often a device replays; each call for recordings failing in turn. What
 * the fake complains of, leaks too, ends the test. A small GPT is in tests/test_graphs.c.
 */
#include "tests/device.h"
#include "tests/fake_cuda.h"
#include "tests/random.h"

#define N 64 /* floats of a buffer */
#define NBYTES (N * sizeof(float))
#define PIECES 5 /* of work in a round, when nothing is special */

typedef struct desk {
	srt_device_t *device;
	srt_stream_t *stream, *other;
	srt_event_t *event;
	srt_buffer_t *x, *y, *z, *pinned;
	srt_sequence_t *sequence, *inner;
} desk_t;

static void open_desk(desk_t *d, int graphs)
{
	float ones[N];

	setenv("SHARDRT_GRAPHS", graphs ? "auto" : "no", 1);
	memset(d, 0, sizeof(*d));
	d->device = test_device_of("cuda", 1, "inline");
	CHECK_OK_OR_DIE(srt_stream_create(d->device, 0, "first", &d->stream));
	CHECK_OK_OR_DIE(srt_stream_create(d->device, 0, "other", &d->other));
	CHECK_OK_OR_DIE(srt_event_create(d->device, &d->event));
	d->x = test_buffer(d->device, NBYTES, "x");
	d->y = test_buffer(d->device, NBYTES, "y");
	d->z = test_buffer(d->device, NBYTES, "z");
	CHECK_OK_OR_DIE(srt_buffer_create(d->device, SRT_MEM_PINNED, NBYTES, "p", &d->pinned));
	CHECK_OK_OR_DIE(srt_sequence_create(d->device, "round", &d->sequence));
	CHECK_OK_OR_DIE(srt_sequence_create(d->device, "inner", &d->inner));
	for (int i = 0; i < N; i++)
		ones[i] = 1.0f + (float)i;
	CHECK_OK(srt_copy_from_host(d->stream, d->x, 0, ones, NBYTES));
}

static void close_desk(desk_t *d)
{
	srt_sequence_destroy(d->inner);
	srt_sequence_destroy(d->sequence);
	srt_event_destroy(d->event);
	srt_stream_destroy(d->stream);
	srt_stream_destroy(d->other);
	srt_buffer_destroy(d->x);
	srt_buffer_destroy(d->y);
	srt_buffer_destroy(d->z);
	srt_buffer_destroy(d->pinned);
	srt_device_close(d->device);
	CHECK_INT(f->live(), 0);
}

static srt_view_t at(srt_buffer_t *b)
{
	return srt_view(b, 0, SRT_F32);
}

/* What a round has that the others have not. */
enum special {
	NOTHING,
	SCALAR, /* another one each round */
	TWO,    /* one of two scalars in turn */
	SHORT,
	LONG,
	EDGE, /* the other stream comes between */
	UPLOAD,
	TO_PINNED,
	DROPOUT, /* with a seed of its own */
	NEW_BUFFER,
	FAILURE,
	INNER,
	READ,
	NSPECIALS
};

static void middle(desk_t *d, enum special special, int round)
{
	float v[N] = { 0 };

	if (special == EDGE) {
		CHECK_OK(srt_event_record(d->event, d->stream));
		CHECK_OK(srt_stream_wait_event(d->other, d->event));
		CHECK_OK(srt_op_scale(d->other, at(d->z), at(d->z), 0.5f, N));
		CHECK_OK(srt_event_record(d->event, d->other));
		CHECK_OK(srt_stream_wait_event(d->stream, d->event));
	} else if (special == UPLOAD) {
		v[3] = (float)round;
		CHECK_OK(srt_copy_from_host(d->stream, d->z, 0, v, NBYTES));
	} else if (special == TO_PINNED) {
		CHECK_OK(srt_copy(d->stream, d->pinned, 0, d->z, 0, NBYTES));
		CHECK_OK(srt_copy(d->stream, d->y, 0, d->pinned, 0, NBYTES));
	} else if (special == DROPOUT) {
		CHECK_OK(srt_op_dropout(d->stream, at(d->z), at(d->z), (uint64_t)round, "z", 0, N,
					0.25f));
	} else if (special == FAILURE) {
		CHECK(srt_op_scale(d->stream, at(d->z), at(d->z), 1.0f, N + 1) != SRT_OK);
	} else if (special == READ) {
		CHECK_OK(srt_copy_to_host(d->stream, v, d->z, 0, NBYTES));
		CHECK(v[1] == v[1]);
	}
}

/* z = ..., y = y/2 + x + ... */
static void put_round(desk_t *d, enum special special, int round)
{
	const float scalar = special == SCALAR ? 1.0f + 0.001f * (float)round :
			     special == TWO    ? 1.0f + (float)(round & 1) :
						 3.0f;

	CHECK_OK(srt_zero(d->stream, d->z, 0, NBYTES));
	CHECK_OK(srt_op_axpy(d->stream, at(d->z), at(d->x), scalar, N));
	middle(d, special, round);
	CHECK_OK(srt_op_scale(d->stream, at(d->y), at(d->y), 0.5f, N));
	if (special == SHORT)
		return;
	CHECK_OK(srt_op_add(d->stream, at(d->y), at(d->y), at(d->z), N));
	CHECK_OK(srt_copy(d->stream, d->z, 0, d->y, 0, NBYTES));
	for (int i = 0; special == LONG && i < 3; i++)
		CHECK_OK(srt_op_scale(d->stream, at(d->y), at(d->z), 0.9f, N));
}

static void new_buffer(desk_t *d)
{
	CHECK_OK(srt_stream_sync(d->stream));
	srt_buffer_destroy(d->z);
	d->z = test_buffer(d->device, NBYTES, "new z");
}

static void run_round(desk_t *d, enum special special, int round)
{
	if (special == NEW_BUFFER)
		new_buffer(d);
	CHECK_OK(srt_sequence_begin(d->sequence, d->stream));
	if (special == INNER)
		CHECK_OK(srt_sequence_begin(d->inner, d->stream));
	put_round(d, special, round);
	if (special == INNER)
		CHECK_OK(srt_sequence_end(d->inner, d->stream));
	CHECK_OK(srt_sequence_end(d->sequence, d->stream));
}

static void result(desk_t *d, float *y)
{
	CHECK_OK(srt_copy_to_host(d->stream, y, d->y, 0, NBYTES));
}

/* ---- results ------------------------------------------------------------------------------- */

#define ROUNDS 150

/* Rounds of all kinds in a random order, those without anything special most often. */
static void test_results(uint64_t seed)
{
	float y[2][N];
	uint64_t replays = 0;
	desk_t d;

	for (int graphs = 0; graphs < 2; graphs++) {
		random_state = seed * 0x9e3779b97f4a7c15u;
		open_desk(&d, graphs);
		for (int round = 0; round < ROUNDS; round++) {
			uint32_t kind = random32() % (2 * NSPECIALS);

			run_round(&d, kind < NSPECIALS ? (enum special)kind : NOTHING, round);
		}
		result(&d, y[graphs]);
		replays = srt_device_replays(d.device);
		CHECK(graphs ? replays > 20 : replays == 0);
		close_desk(&d);
	}
	CHECK(memcmp(y[0], y[1], NBYTES) == 0);
	CHECK(y[0][0] > 1.0f && y[0][0] < 1e3f);
}

/* ---- how often ------------------------------------------------------------------------------- */

/* Replays of n rounds of a kind. */
static int replays_of(desk_t *d, enum special special, int n)
{
	uint64_t before = srt_device_replays(d->device);

	for (int round = 0; round < n; round++)
		run_round(d, special, round);
	CHECK_OK(srt_stream_sync(d->stream));
	return (int)(srt_device_replays(d->device) - before);
}

static void test_replays(void)
{
	uint64_t launches;
	long calls;
	desk_t d;

	open_desk(&d, 1);
	launches = srt_device_launches(d.device);
	CHECK_INT(replays_of(&d, NOTHING, 10), 9); /* learnt, recorded, replayed */
	CHECK_INT((int)(srt_device_launches(d.device) - launches), 10 * (PIECES - 2));
	calls = f->count("cuLaunchKernel");
	CHECK_INT(replays_of(&d, NOTHING, 5), 5);
	CHECK_INT(f->count("cuLaunchKernel"), calls);
	/* Two takes in turn, and the first one still there. */
	CHECK_INT(replays_of(&d, TWO, 10), 8);
	CHECK_INT(replays_of(&d, NOTHING, 3), 3);
	CHECK_INT(replays_of(&d, LONG, 4), 3);
	/* Less than a recording is worth. */
	CHECK_INT(replays_of(&d, SHORT, 5), 0);
	/* A buffer is freed: all starts anew; one that is not used does not matter. */
	new_buffer(&d);
	CHECK_INT(replays_of(&d, NOTHING, 4), 3);
	srt_buffer_destroy(test_buffer(d.device, 64, "unused"));
	CHECK_INT(replays_of(&d, NOTHING, 4), 4);
	/* Another stream. */
	CHECK_OK(srt_stream_sync(d.stream));
	srt_stream_destroy(d.other);
	d.other = d.stream;
	CHECK_OK_OR_DIE(srt_stream_create(d.device, 0, "third", &d.stream));
	CHECK_INT(replays_of(&d, NOTHING, 4), 3);
	/* Never the same: no replay, and nothing is watched any more. */
	CHECK_INT(replays_of(&d, SCALAR, 40), 0);
	CHECK_INT(replays_of(&d, NOTHING, 4), 0);
	close_desk(&d);
}

/* An open sequence may lose its stream, and be destroyed. */
static void test_ends(void)
{
	float y[N] = { 0 };
	desk_t d;

	open_desk(&d, 1);
	CHECK_STATUS(srt_sequence_end(d.sequence, d.stream), SRT_ERR_STATE);
	CHECK_STATUS(srt_sequence_begin(d.sequence, NULL), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_sequence_create(d.device, "x", NULL), SRT_ERR_INVALID_ARGUMENT);
	CHECK_INT(replays_of(&d, NOTHING, 2), 1);
	CHECK_OK(srt_sequence_begin(d.sequence, d.stream));
	CHECK_STATUS(srt_sequence_begin(d.sequence, d.other), SRT_ERR_STATE);
	CHECK_STATUS(srt_sequence_end(d.sequence, d.other), SRT_ERR_STATE);
	put_round(&d, NOTHING, 0);
	srt_sequence_destroy(d.sequence); /* what is held back is put on the stream */
	result(&d, y);
	CHECK(y[0] == 3.0f * 1.75f);
	CHECK_OK_OR_DIE(srt_sequence_create(d.device, "again", &d.sequence));
	CHECK_INT(replays_of(&d, NOTHING, 2), 1);
	CHECK_OK(srt_sequence_begin(d.sequence, d.stream));
	put_round(&d, NOTHING, 0);
	srt_stream_destroy(d.stream);
	CHECK_OK(srt_copy_to_host(d.other, y, d.y, 0, NBYTES));
	CHECK(y[0] == 3.0f * (1.75f / 8.0f + 1.75f));
	d.stream = NULL;
	close_desk(&d);
}

/* ---- failures ------------------------------------------------------------------------------- */

/* What fails while a recording is made costs the recording alone. */
static void test_failing_recordings(void)
{
	static const char *const names[] = {
		"cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphInstantiateWithFlags",
		"cuLaunchKernel",       "cuMemsetD8Async",    "cuMemcpyAsync"
	};
	float right[N], y[N];
	desk_t d;

	open_desk(&d, 0);
	replays_of(&d, NOTHING, 6);
	result(&d, right);
	close_desk(&d);
	for (size_t i = 0; i < SRT_ARRAY_LEN(names); i++) {
		open_desk(&d, 1);
		f->reset();
		CHECK_INT(replays_of(&d, NOTHING, 1), 0);
		f->fail_call(names[i], 1, CUDA_ERROR_LAUNCH_FAILED); /* when it is recorded */
		CHECK_INT(replays_of(&d, NOTHING, 5), 0);
		CHECK_STR(f->failed(), names[i]);
		result(&d, y);
		CHECK_MSG(memcmp(y, right, NBYTES) == 0, "wrong after %s", names[i]);
		close_desk(&d);
	}
}

/* A replay that fails is work that fails. */
static void test_failing_replay(void)
{
	float y[N];
	desk_t d;

	open_desk(&d, 1);
	CHECK_INT(replays_of(&d, NOTHING, 3), 2);
	f->reset();
	f->fail_call("cuGraphLaunch", 1, CUDA_ERROR_LAUNCH_FAILED);
	run_round(&d, NOTHING, 0);
	CHECK_STATUS(srt_copy_to_host(d.stream, y, d.y, 0, NBYTES), SRT_ERR_DEVICE);
	CHECK_ERROR_HAS("replaying a recording");
	run_round(&d, NOTHING, 0); /* skipped, as all that follows a failure */
	run_round(&d, SCALAR, 0);
	CHECK_STATUS(srt_stream_sync(d.stream), SRT_ERR_DEVICE);
	close_desk(&d);
	f->reset();
}

int main(void)
{
	setenv("SHARDRT_CUDA_DRIVER", FAKE_CUDA_PATH, 1);
	fake_cuda_load();
	f->set("delay_us", 0);
	f->set("kernels", 1);
	for (uint64_t seed = 1; seed <= 2; seed++)
		test_results(seed);
	test_replays();
	test_ends();
	test_failing_recordings();
	test_failing_replay();
	return check_done();
}
