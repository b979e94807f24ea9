/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Host memory of base: zeroed and never NULL for nothing, arrays that grow and keep what they hold,
 * and what is asked for and cannot be is an error that names it and changes nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/base.h"
#include "base/bytes.h"
#include "tests/harness/check.h"

/*
 * A fallocate() that a signal ends at every other call, and that has room for `room` bytes.
 *
 * Reliability: a signal during an allocation of shared memory, on kernels before 6.10 | "out of
 * memory" on all ranks | in pieces, each tried again
 */
static size_t room_nbytes, done_nbytes, most_nbytes;
static bool interrupted;

static int fake_fallocate(int fd, int mode, off_t offset, off_t nbytes)
{
	CHECK_INT(fd, 3);
	CHECK_INT(mode, 0);
	interrupted = !interrupted;
	if (interrupted) {
		errno = EINTR;
		return -1;
	}
	CHECK_INT(offset, done_nbytes);
	if (done_nbytes + (size_t)nbytes > room_nbytes) {
		errno = ENOSPC;
		return -1;
	}
	done_nbytes += (size_t)nbytes;
	if ((size_t)nbytes > most_nbytes)
		most_nbytes = (size_t)nbytes;
	return 0;
}
#define fallocate fake_fallocate
#include "base/memfd.h"
#undef fallocate

#define N 5000

/* One element more at a time: moved seldom, and room is never less than twice what it was. */
static void test_grow_by_one(void)
{
	uint32_t *array = NULL;
	size_t room = 0, moves = 0;

	for (uint32_t i = 0; i < N; i++) {
		size_t before = room;
		uint32_t *grown = srt_grow(array, i + 1, &room, sizeof(*grown), "numbers");

		CHECK_OR_DIE(grown != NULL);
		if (i < before) {
			CHECK(grown == array);
			CHECK_INT(room, before);
		} else {
			CHECK(room > i && room >= 2 * before);
			moves++;
		}
		array = grown;
		array[i] = i ^ 0x5bd1e995u;
	}
	CHECK(moves >= 2 && moves <= 13); /* 2^13 > N */
	for (uint32_t i = 0; i < N; i++)
		CHECK_INT(array[i], i ^ 0x5bd1e995u);
	free(array);
}

/* Many at a time, as strings do. */
static void test_grow_by_many(void)
{
	size_t room = 0;
	char *text = srt_grow(NULL, 1000, &room, 1, "a text");

	CHECK_OR_DIE(text != NULL);
	CHECK(room >= 1000);
	memset(text, 'x', 1000);
	text = srt_grow(text, 7 * room, &room, 1, "a text");
	CHECK_OR_DIE(text != NULL);
	CHECK(room >= 7000);
	for (int i = 0; i < 1000; i++)
		CHECK(text[i] == 'x');
	free(text);
}

static void test_failures(void)
{
	size_t room = 0;
	uint64_t *array = srt_grow(NULL, 3, &room, sizeof(*array), "numbers");
	size_t before = room;

	CHECK_OR_DIE(array != NULL);
	array[2] = 42;
	/* Bytes that do not fit a size_t. What no system has is not asked for: sanitizers would end
	 * the program. */
	CHECK(srt_grow(array, SIZE_MAX / 4, &room, sizeof(*array), "too many") == NULL);
	CHECK_ERROR_HAS("out of host memory for too many: ");
	CHECK_INT(room, before);
	CHECK_INT(array[2], 42);
	CHECK(srt_realloc(array, SIZE_MAX / 4, sizeof(*array), "the same") == NULL);
	CHECK_ERROR_HAS("the same");
	CHECK_INT(array[2], 42);
	free(array);
}

static void test_empty(void)
{
	unsigned char *zeros = srt_calloc(N, 3, "zeros");
	size_t room = 0;
	void *nothing = srt_calloc(0, 8, "nothing");

	CHECK_OR_DIE(zeros != NULL && nothing != NULL);
	for (int i = 0; i < 3 * N; i++)
		CHECK(zeros[i] == 0);
	free(zeros);
	nothing = srt_realloc(nothing, 0, 8, "nothing");
	CHECK(nothing != NULL);
	free(nothing);
	nothing = srt_grow(NULL, 0, &room, 8, "nothing");
	CHECK(nothing != NULL);
	free(nothing);
}

/* Linux before 6.10: a signal ends a call and undoes it. Pages are allocated in short calls, each
 * repeated, and all of them. */
static void test_interrupted(void)
{
	const size_t nbytes = ((size_t)1 << 30) + 12345;

	room_nbytes = SIZE_MAX;
	CHECK(srt_memfd_allocate(3, nbytes));
	CHECK_INT(done_nbytes, nbytes);
	CHECK(most_nbytes <= (size_t)64 << 20);
	done_nbytes = 0;
	room_nbytes = nbytes / 2;
	CHECK(!srt_memfd_allocate(3, nbytes));
	CHECK_INT(errno, ENOSPC);
}

static void test_bytes(void)
{
	CHECK_STR(srt_bytes(0).text, "0 bytes");
	CHECK_STR(srt_bytes(1023).text, "1023 bytes");
	CHECK_STR(srt_bytes(1024).text, "1.0 KiB (1024 bytes)");
	CHECK_STR(srt_bytes(1048575).text, "1.0 MiB (1048575 bytes)");
	CHECK_STR(srt_bytes(3435973836u).text, "3.2 GiB (3435973836 bytes)");
	CHECK_STR(srt_bytes(SIZE_MAX).text, "16.0 EiB (18446744073709551615 bytes)");
}

int main(void)
{
	test_interrupted();
	test_bytes();
	test_grow_by_one();
	test_grow_by_many();
	test_failures();
	test_empty();
	return check_done();
}
