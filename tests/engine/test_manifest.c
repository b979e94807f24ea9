/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parser of manifests: refusals with their messages, and memory. All texts have a checksum that
 * is right, as anybody can write it.
 */
#include <stdarg.h>
#include <sys/resource.h>

#include "base/base.h"
#include "base/hash128.h"
#include "runtime/checkpoint/formats/manifest.h"
#include "tests/harness/check.h"

#define VERSIONS "\"world\":2,\"numerics_version\":2,\"optimizer\":\"sgd\","
#define HEAD "{\"shardrt_checkpoint\":1,\"id\":\"0123456789abcdef\"," VERSIONS
#define A32 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define FILES "\"files\":[{\"name\":\"a\",\"nbytes\":1,\"header\":\"0000000000000000\"}],"
#define NOTHING "\"groups\":[],\"entries\":[],"
#define TENSOR "{\"name\":\"w\",\"kind\":\"value\",\"dtype\":\"f32\","
#define BOX(offset, size)                                                                          \
	"{\"file\":0,\"offset\":" offset ",\"size\":" size ",\"xxh3\":\"1111111111111111\"}"
#define ONE(shape, boxes) TENSOR "\"shape\":" shape ",\"steps\":-1,\"boxes\":[" boxes "]}"
#define TENSORS(list) HEAD NOTHING FILES "\"tensors\":[" list "]"

/* Parses a text with its checksum, which has room for it. */
static srt_status_t parse(char *text, size_t nbytes)
{
	const size_t tail = sizeof(SRT_MANIFEST_CHECKSUM SRT_MANIFEST_TAIL) + 16;
	srt_manifest_t m = { .world = 0 };
	srt_status_t status;

	snprintf(text + nbytes, tail, SRT_MANIFEST_CHECKSUM "%016llx" SRT_MANIFEST_TAIL,
		 (unsigned long long)srt_xxh3_64(text, nbytes));
	status = srt_manifest_parse(text, nbytes + tail - 1, &m);
	srt_manifest_clear(&m);
	return status;
}

static const struct {
	const char *text, *why; /* NULL: it is accepted */
} cases[] = {
	{ TENSORS(""), NULL },
	{ TENSORS(ONE("[]", BOX("[]", "[]"))), NULL },
	{ TENSORS(ONE("[3,0]", "")), NULL },
	{ " { \"shardrt_checkpoint\" : 1 , \"id\" : \"0123456789abcdef\" , \"world\" : 2 ,"
	  "\"numerics_version\" : 2 , \"numerics\" : \"fast\" , \"optimizer\" : \"\\u0061\" , " NOTHING
	  "\"files\" : [ ] , \"tensors\" : [ ] ",
	  NULL },
	{ TENSORS("") ",\"x\":[]", "expected the key 'checksum', not 'x'" },
	{ HEAD "\"x\":1," NOTHING FILES "\"tensors\":[]", "expected the key 'groups', not 'x'" },
	{ HEAD NOTHING FILES FILES "\"tensors\":[]", "expected the key 'tensors', not 'files'" },
	{ HEAD NOTHING "\"tensors\":[]," FILES, "expected the key 'files', not 'tensors'" },
	{ "{\"shardrt_checkpoint\":2", "has version 2, this library reads version 1" },
	{ "{\"shardrt_checkpoint\":1.0", "expected an integer from 1 to" },
	{ "{\"shardrt_checkpoint\":-1", "expected an integer from 1 to" },
	{ "[]", "byte 0 of the manifest: expected an object" },
	{ HEAD NOTHING "\"files\":[1],", "expected an object" },
	{ HEAD NOTHING "\"files\":[{\"name\":\"../a\"", "'name' is not that of a file" },
	{ HEAD NOTHING "\"files\":[{\"name\":\"a\\u001b[1m\"", "'name' is not that of a file" },
	{ HEAD NOTHING "\"files\":[{\"name\":\"" A32 A32 A32 "\"", "'name' is not that of a file" },
	{ HEAD NOTHING "\"files\":[{\"name\":\"a\",\"nbytes\":1,\"header\":\"0000000000000000\"},"
		       "{\"name\":\"a\",\"nbytes\":1,\"header\":\"0000000000000000\"}]",
	  "the file 'a' occurs twice" },
	{ HEAD "\"groups\":[{\"has_lr\":1", "'has_lr' is not true or false" },
	{ HEAD "\"groups\":[{\"optimizer\":\"muon\",\"has_lr\":1",
	  "'has_lr' is not true or false" },
	{ HEAD "\"groups\":[{\"optimizer\":\"\"", "'optimizer' is not a text of one character" },
	{ TENSORS(TENSOR "\"shape\":[],\"steps\":0,\"group\":0"),
	  "expected an integer from 0 to -1" },
	{ HEAD "\"scaler\":{\"scale\":4294967296", "expected an integer from 0 to 4294967295" },
	{ HEAD "\"groups\":[],\"entries\":[{\"key\":\"a\",\"bytes\":\"0g\"}]", "hexadecimal" },
	{ TENSORS(ONE("[1,1,1,1,1,1]", "")), "tensor 'w': 'shape' is not an array for at most 5" },
	{ TENSORS(ONE("[2]", BOX("[0]", "[1]"))), "its boxes have 1 of its 2 elements" },
	{ TENSORS(ONE("[2]", BOX("[0]", "[1]") "," BOX("[1]", "[1]"))),
	  "tensor 'w': it has more than one box in a file" },
	{ TENSORS(ONE("[2]", BOX("[0,0]", "[2]"))), "'size' is not that of a box of its tensor's" },
	{ TENSORS(ONE("[2]", BOX("[1]", "[2]"))), "'size' is not that of a box within" },
	{ TENSORS(ONE("[2]", "") "," ONE("[2]", "")), "its boxes have 0 of its 2 elements" },
	{ TENSORS(ONE("[0]", "") "," ONE("[0]", "")), "tensor 'w' occurs twice" },
};

static void test_cases(void)
{
	for (size_t i = 0; i < SRT_ARRAY_LEN(cases); i++) {
		const size_t n = strlen(cases[i].text);
		char *text = malloc(n + 64);
		srt_status_t status;

		CHECK_OR_DIE(text != NULL);
		memcpy(text, cases[i].text, n);
		status = parse(text, n);
		CHECK_MSG((status == SRT_OK) == (cases[i].why == NULL), "%s: %s", cases[i].text,
			  status != SRT_OK ? srt_error_last() : "accepted");
		if (cases[i].why != NULL)
			CHECK_MSG(strstr(srt_error_last(), cases[i].why) != NULL, "%s: %s",
				  cases[i].text, srt_error_last());
		free(text);
	}
}

/* ---- long texts ------------------------------------------------------------------------- */

enum { NBYTES = 4 << 20, MOST = 6, WORLD = 512 };

static char *text;
static size_t at;

SRT_PRINTF(1, 2) static void put(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	at += (size_t)vsnprintf(text + at, NBYTES - at, format, ap);
	va_end(ap);
	CHECK_OR_DIE(at < NBYTES);
}

/* Small parts that follow each other as long as there is room. */
static void put_parts(const char *begin, const char *part, const char *end)
{
	const size_t n = strlen(part);

	put("%s", begin);
	for (; at + n + 64 < NBYTES; at += n)
		memcpy(text + at, part, n);
	at -= part[n - 1] == ','; /* the last one has no comma */
	put("%s", end);
}

static void put_files(int n)
{
	put(HEAD NOTHING "\"files\":[");
	for (int i = 0; i < n; i++)
		put("%s{\"name\":\"%d\",\"nbytes\":0,\"header\":\"0000000000000000\"}",
		    i > 0 ? "," : "", i);
	put("],\"tensors\":[");
}

/* A box of one block. */
static void put_box(int file, int row, int column, int rows, int columns)
{
	put("%s{\"file\":%d,\"offset\":[%d,%d],\"size\":[%d,%d],\"xxh3\":\"1111111111111111\"}",
	    file > 0 ? "," : "", file, row, column, rows, columns);
}

/* A model of 80 tensors whose rows are sharded over many ranks: each has one box of each. */
static void put_model(void)
{
	put_files(WORLD);
	for (int t = 0; t < 80; t++) {
		put("%s{\"name\":\"w%d\",\"kind\":\"value\",\"dtype\":\"f32\",\"shape\":[%d,8],"
		    "\"steps\":3,\"boxes\":[",
		    t > 0 ? "," : "", t, 3 * WORLD);
		for (int r = 0; r < WORLD; r++)
			put_box(r, 3 * r, 0, 3, 8);
		put("]}");
	}
	put("]");
}

/* A tensor of n columns and, below them, n rows. No two overlap, but in each dimension most have
 * indices in common. */
static void put_crossed(int n)
{
	put_files(2 * n);
	put("{\"name\":\"w\",\"kind\":\"value\",\"dtype\":\"f32\",\"shape\":[%d,%d],\"steps\":0,"
	    "\"boxes\":[",
	    2 * n, n);
	for (int i = 0; i < n; i++)
		put_box(i, 0, i, n, 1);
	for (int i = 0; i < n; i++)
		put_box(n + i, n + i, 0, 1, n);
	put("]}]");
}

/*
 * Reliability: a hostile manifest | 77 times its length of memory on every rank, and time with the
 * square of its length | at most 6 times, and time in proportion; a tensor has one box in a file
 */
static void test_memory(void)
{
	static const char *const parts[][4] = {
		{ HEAD "\"x\":[", "{},", "]", "expected the key 'groups', not 'x'" },
		{ HEAD "\"x\":[", "0,", "]", "expected the key 'groups', not 'x'" },
		{ TENSORS("") ",\"x\":[", "{},", "]", "expected the key 'checksum', not 'x'" },
		{ HEAD "\"groups\":[", "[", "]", "expected an object" },
		{ HEAD "\"groups\":[],\"entries\":[", "{\"key\":\"a\",\"bytes\":\"\"},", "]",
		  "expected the key 'files'" },
		{ HEAD NOTHING FILES "\"tensors\":[" TENSOR "\"shape\":[9],\"steps\":0,\"boxes\":[",
		  BOX("[0]", "[1]") ",", "]}]", "more than one box in a file" },
		{ HEAD NOTHING FILES "\"tensors\":[", ONE("[0]", "") ",", "]", "occurs twice" },
		{ HEAD NOTHING FILES "\"tensors\":[", ONE("[]", BOX("[]", "[]")) ",", "]",
		  "occurs twice" },
	};
	struct rusage before, after;

	text = malloc(NBYTES + 64);
	CHECK_OR_DIE(text != NULL);
	memset(text, 0, NBYTES + 64);
	CHECK_OR_DIE(getrusage(RUSAGE_SELF, &before) == 0);
	for (size_t i = 0; i < SRT_ARRAY_LEN(parts); i++) {
		at = 0;
		put_parts(parts[i][0], parts[i][1], parts[i][2]);
		CHECK_STATUS(parse(text, at), SRT_ERR_FORMAT);
		CHECK_ERROR_HAS(parts[i][3]);
	}
	at = 0;
	put_model();
	CHECK_OK(parse(text, at));
	at = 0;
	put_crossed(13000);
	CHECK_OK(parse(text, at));
	CHECK_OR_DIE(getrusage(RUSAGE_SELF, &after) == 0);
	free(text);
#ifndef CHECK_SANITIZED /* a sanitizer keeps what was freed */
	CHECK_MSG(after.ru_maxrss - before.ru_maxrss < MOST * (NBYTES >> 10),
		  "a manifest of %d KiB took %ld KiB", NBYTES >> 10,
		  after.ru_maxrss - before.ru_maxrss);
	printf("a manifest of %d KiB took %ld KiB\n", NBYTES >> 10,
	       after.ru_maxrss - before.ru_maxrss);
#endif
}

int main(void)
{
	test_cases();
	test_memory();
	return check_done();
}
