/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parser of safetensors headers: every refusal with its message, escapes, memory.
 */
#include <sys/resource.h>

#include "base/base.h"
#include "runtime/checkpoint/formats/safetensors.h"
#include "tests/harness/check.h"

/* A header of a file with nbytes of data. */
static srt_status_t parse(const char *header, size_t nbytes)
{
	srt_safetensors_header_t parsed = { 0 };
	size_t n = strlen(header);
	char *text = malloc(n + 1);
	srt_status_t status;

	CHECK_OR_DIE(text != NULL);
	memcpy(text, header, n + 1);
	status = srt_safetensors_parse(text, n, nbytes, &parsed);
	srt_safetensors_header_free(&parsed);
	free(text);
	return status;
}

#define T(dtype, shape, offsets)                                                                   \
	"{\"x\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
#define MORE(value)                                                                                \
	"{\"x\":{\"dtype\":\"F32\",\"more\":" value ",\"shape\":[1],\"data_offsets\":[0,4]}}"
#define X "\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}"
#define Y(offsets) "\"y\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":" offsets "}"

static const struct {
	const char *header;
	size_t nbytes; /* of data */
	const char *why;
} hostile[] = {
	{ "", 4, "byte 0 of the header: expected '{'" },
	{ "[]", 0, "expected '{'" },
	{ " {}", 0, "expected '{'" },
	{ "\xef\xbb\xbf{}", 0, "expected '{'" },
	{ "{} {}", 0, "byte 3 of the header: expected the end" },
	{ "{", 0, "expected a string" },
	{ "{" X, 4, "expected ',' or '}'" },
	{ "{" X ",}", 4, "expected a string" },
	{ "{,}", 0, "expected a string" },
	{ "{\"x\"}", 0, "expected ':'" },
	{ "{" X "," X "}", 4, "'x' occurs twice" },
	{ "{\"a\\u0000b\":{}}", 0, "zero byte" },
	{ "{\"a\nb\":{}}", 0, "UTF-8" },
	{ "{\"a\\x\":{}}", 0, "escape" },
	{ "{\"a\\u12g4\":{}}", 0, "escape" },
	{ "{\"\\ud800\":{}}", 0, "escape" },
	{ "{\"\\ud800\\u0041\":{}}", 0, "escape" },
	{ "{\"\\udc00\":{}}", 0, "escape" },
	{ "{\"a\\", 0, "escape" },
	{ "{\"a", 0, "UTF-8 or the string's end" },
	{ "{\"\xed\xa0\x80\":{}}", 0, "UTF-8" },
	{ "{\"\xc0\x80\":{}}", 0, "UTF-8" },
	{ "{\"\xff\":{}}", 0, "UTF-8" },
	{ "{\"x\":1}", 0, "expected an object" },
	{ "{\"x\":{}}", 0, "has dtype, shape and data_offsets" },
	{ MORE("01"), 4, "expected ','" },
	{ MORE("-"), 4, "expected a value" },
	{ MORE("1.e1"), 4, "expected a value" },
	{ MORE("1e"), 4, "expected a value" },
	{ MORE("1e999"), 4, "expected a value" },
	{ MORE("nul"), 4, "expected a value" },
	{ MORE("[1,]"), 4, "expected a value" },
	{ MORE("{\"a\":1,}"), 4, "expected a string" },
	{ MORE("{1:1}"), 4, "expected a string" },
	{ MORE("[}"), 4, "expected a value" },
	{ "{\"x\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
	  "dtype occurs twice" },
	{ T("3", "[1]", "[0,4]"), 4, "expected a string" },
	{ T("\"F33\"", "[1]", "[0,4]"), 4, "unknown dtype" },
	{ T("\"\"", "[1]", "[0,4]"), 4, "unknown dtype" },
	{ T("\"f32\"", "[1]", "[0,4]"), 4, "unknown dtype" },
	{ T("\"F32\"", "1", "[0,4]"), 4, "expected an array" },
	{ T("\"F32\"", "[-1]", "[0,4]"), 4, "from 0 to" },
	{ T("\"F32\"", "[1.0]", "[0,4]"), 4, "expected an integer" },
	{ T("\"F32\"", "[1e30]", "[0,4]"), 4, "expected an integer" },
	{ T("\"F32\"", "[01]", "[0,4]"), 4, "expected an integer" },
	{ T("\"F32\"", "[+1]", "[0,4]"), 4, "expected an integer" },
	{ T("\"F32\"", "[1,]", "[0,4]"), 4, "expected an integer" },
	{ T("\"F32\"", "[1 1]", "[0,4]"), 4, "expected ',' or ']'" },
	{ T("\"F32\"", "[NaN]", "[0,4]"), 4, "expected an integer" },
	{ T("\"F32\"", "[null]", "[0,4]"), 4, "expected an integer" },
	{ T("\"F32\"", "[true]", "[0,4]"), 4, "expected an integer" },
	{ T("\"F32\"", "[9223372036854775808]", "[0,4]"), 4, "to 9223372036854775807" },
	{ T("\"F32\"", "[4611686018427387904]", "[0,4]"), 4, "overflows" },
	{ T("\"F32\"", "[4294967296,4294967296]", "[0,4]"), 4, "overflows" },
	{ T("\"F32\"", "[4294967296,4294967296,0]", "[0,0]"), 0, "overflows" },
	{ T("\"F32\"", "[0,4294967296,4294967296]", "[0,0]"), 0, "overflows" },
	{ T("\"F32\"", "[1,1,1,1,1,1,1,1,9223372036854775807]", "[0,4]"), 4, "overflows" },
	{ T("\"F4\"", "[3]", "[0,1]"), 1, "its 3 elements of 4 bits are not whole bytes" },
	{ T("\"F4\"", "[4]", "[0,4]"), 4, "need 2" },
	{ T("\"F32\"", "[1]", "[0]"), 4, "two integers" },
	{ T("\"F32\"", "[1]", "[0,4,4]"), 4, "two integers" },
	{ T("\"F32\"", "[1]", "[0,4.0]"), 4, "expected an integer" },
	{ T("\"F32\"", "[1]", "{}"), 4, "expected an array" },
	{ T("\"F32\"", "[1]", "[-4,0]"), 4, "expected an integer" },
	{ T("\"F32\"", "[1]", "[4,0]"), 4, "not within" },
	{ T("\"F32\"", "[1]", "[0,8]"), 4, "not within" },
	{ T("\"F32\"", "[1]", "[9223372036854775803,9223372036854775807]"), 4, "not within" },
	{ T("\"F32\"", "[2]", "[0,4]"), 4, "need 8" },
	{ T("\"F64\"", "[1]", "[0,4]"), 4, "need 8" },
	{ T("\"F32\"", "[]", "[0,0]"), 0, "need 4" },
	{ "{" X "}", 8, "the file has 8" },
	{ "{}", 1, "the file has 1" },
	{ "{" X "," Y("[0,4]") "}", 4, "overlap" },
	{ "{" X "," Y("[2,6]") "}", 6, "overlap" },
	{ "{" X "," Y("[5,9]") "}", 9, "gap" },
	{ "{" Y("[4,8]") "}", 8, "gap" },
	{ "{\"__metadata__\":1}", 0, "expected an object" },
	{ "{\"__metadata__\":{\"a\":1}}", 0, "expected a string" },
	{ "{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, "'a' occurs twice" },
	{ "{\"__metadata__\":{},\"__metadata__\":{}}", 0, "occurs twice" },
	{ "{\"__metadata__\":null,\"__metadata__\":null}", 0, "occurs twice" },
	{ "{\"__metadata__\":nul}", 0, "expected an object" },
};

static void test_hostile(void)
{
	enum { DEPTH = 1000000 };
	char *deep = malloc(DEPTH + 1);

	for (size_t i = 0; i < SRT_ARRAY_LEN(hostile); i++) {
		srt_status_t s = parse(hostile[i].header, hostile[i].nbytes);

		CHECK_MSG(s == SRT_ERR_FORMAT || s == SRT_ERR_UNSUPPORTED, "header %s: %s",
			  hostile[i].header, srt_status_string(s));
		CHECK_MSG(strstr(srt_error_last(), hostile[i].why), "header %s: %s",
			  hostile[i].header, srt_error_last());
	}
	/* nesting must not use up the stack */
	CHECK_OR_DIE(deep != NULL);
	memset(deep, '[', DEPTH);
	memcpy(deep, "{\"x\":", 5);
	deep[DEPTH - 1] = '}';
	deep[DEPTH] = '\0';
	CHECK_STATUS(parse(deep, 0), SRT_ERR_FORMAT);
	memcpy(deep, "{\"x\":{\"y\":", 10);
	CHECK_STATUS(parse(deep, 0), SRT_ERR_FORMAT);
	CHECK_ERROR_HAS("expected fewer objects and arrays within each other");
	free(deep);
	/* and what is legal though odd */
	CHECK_OK(parse("{}", 0));
	CHECK_OK(parse("{}      ", 0));
	CHECK_OK(parse("{ \t\n\r}\n", 0));
	CHECK_OK(parse("{ \"__metadata__\" : { } , " X " }", 4));
	CHECK_OK(parse("{\"\":{\"data_offsets\":[0,1],\"shape\":[],\"dtype\":\"U8\"}}", 1));
	CHECK_OK(parse("{" X "," Y("[4,8]") "}", 8));
	CHECK_OK(parse("{" Y("[4,8]") "," X "}", 8));
	CHECK_OK(parse(T("\"I16\"", "[]", "[0,2]"), 2));
	CHECK_OK(parse(T("\"F8_E4M3\"", "[0,3]", "[0,0]"), 0));
}

/*
 * What the format's reference reader accepts.
 *
 * Reliability: a file with an unused tensor of a dtype or of dimensions that no parameter has, with
 * a key that the format does not have, or with empty metadata | refused | read
 */
static void test_liberal(void)
{
	static const char *const packed[] = { "F4", "F6_E2M3", "F6_E3M2" };
	static const char *const others[] = { "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ" };
	srt_safetensors_header_t parsed = { 0 };
	char text[160] = T("\"F32\"", "[1,1,1,1,2,1,1,1,1,3]", "[0,24]");

	CHECK_OK(srt_safetensors_parse(text, strlen(text), 24, &parsed));
	CHECK(parsed.tensors[0].ndim == 10 && parsed.tensors[0].nelem == 6);
	CHECK_INT(srt_safetensors_nsizes(&parsed.tensors[0]), SRT_SAFETENSORS_MAX_DIMS);
	srt_safetensors_header_free(&parsed);
	for (size_t i = 0; i < 3; i++) {
		snprintf(text, sizeof(text), T("\"%s\"", "[2,4]", "[0,%d]"), packed[i],
			 i == 0 ? 4 : 6);
		CHECK_OK(parse(text, i == 0 ? 4 : 6));
		snprintf(text, sizeof(text), T("\"%s\"", "[2,4]", "[0,8]"), others[i]);
		CHECK_OK(parse(text, 8));
	}
	CHECK_OK(parse(T("\"C64\"", "[2]", "[0,16]"), 16));
	CHECK_OK(parse("{\"__metadata__\":null," X "}", 4));
	CHECK_OK(parse(MORE("{\"a\":[1,-2.5e+10,0.5,{\"b\":null}],\"c\":true,\"d\":false}"), 4));
	CHECK_OK(parse(MORE("1,\"more\":[[],{},\"\\u00e4\"]"), 4));
}

/* Names with all escapes, written by us or by another writer. */
static void test_escapes(void)
{
	static const char header[] = "{\"__metadata__\":{\"\\\"\\\\\\/\\b\\f\\n\\r\\t\":"
				     "\"\\u0041\\u00e4\\u20ac\\uD83D\\ude00\\u001f\xc3\xa4\"}}";
	char text[sizeof(header)];
	srt_safetensors_header_t parsed = { 0 };

	memcpy(text, header, sizeof(header));
	CHECK_OK(srt_safetensors_parse(text, sizeof(header) - 1, 0, &parsed));
	CHECK_STR(srt_safetensors_header_metadata(&parsed, "\"\\/\b\f\n\r\t"),
		  "A\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\x1f\xc3\xa4");
	srt_safetensors_header_free(&parsed);
}

/*
 * A long header of small parts must not take many times its length of memory.
 *
 * Reliability: a hostile header | 79 times its length of memory on every rank | at most 12 times
 */
static void test_memory(void)
{
	enum { NBYTES = 4 << 20, MOST = 12 };
	static const char *const parts[][2] = {
		{ "{\"a\":[", "0," },
		{ "{\"a\":[", "[]," },
		{ "{\"a\":[", "{}," },
		{ "{", "\"\":{}," },
		{ "{\"__metadata__\":{", "\"\":\"\"," },
		{ "{", "\"\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}," },
	};
	char *header = malloc(NBYTES + 1);
	struct rusage before, after;

	CHECK_OR_DIE(header != NULL);
	memset(header, ' ', NBYTES);
	header[NBYTES] = '\0';
	CHECK_OR_DIE(getrusage(RUSAGE_SELF, &before) == 0);
	for (size_t i = 0; i < SRT_ARRAY_LEN(parts); i++) {
		size_t nbytes = strlen(parts[i][1]), at = strlen(parts[i][0]);

		memcpy(header, parts[i][0], at);
		for (; at + nbytes < NBYTES; at += nbytes)
			memcpy(header + at, parts[i][1], nbytes);
		CHECK_STATUS(parse(header, 1), SRT_ERR_FORMAT);
	}
	CHECK_OR_DIE(getrusage(RUSAGE_SELF, &after) == 0);
	free(header);
#ifndef CHECK_SANITIZED /* a sanitizer keeps what was freed */
	CHECK_MSG(after.ru_maxrss - before.ru_maxrss < MOST * (NBYTES >> 10),
		  "a header of %d KiB took %ld KiB", NBYTES >> 10,
		  after.ru_maxrss - before.ru_maxrss);
#endif
}

int main(void)
{
	test_hostile();
	test_liberal();
	test_escapes();
	test_memory();
	return check_done();
}
