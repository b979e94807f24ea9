/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parser of the flight recorder's files. Nothing in a file is trusted: each value is checked
 * for its type and range, and texts are made fit to be printed.
 */
#include "config.h"

#include "tools/info/flight.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#ifdef HAVE_JANSSON
#include <jansson.h>

#define MAX_WORLD 1048576
#define MAX_COMMS 4096

/* The file that is parsed, and where its first fault is. */
typedef struct parser {
	flight_file_t *file;
	const char *fault;
} parser_t;

/* Records a fault, unless there is one. Returns false. */
static bool refuse(parser_t *p, const char *key)
{
	if (p->fault == NULL)
		p->fault = key;
	return false;
}

/* Copies a text without control characters (of UTF-8 too), cut where a character begins. */
static void copy_text(char *to, size_t nbytes, const char *from)
{
	size_t n = 0;

	for (const unsigned char *c = (const unsigned char *)from; *c != '\0' && n + 1 < nbytes;
	     c++) {
		const bool second = c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0;

		to[n++] = second || c[0] < 0x20 || c[0] == 0x7f ? '?' : (char)c[0];
		c += second;
	}
	if (n + 1 == nbytes) {
		while (n > 0 && ((unsigned char)to[n - 1] & 0xc0) == 0x80)
			n--;
		n -= n > 0 && (unsigned char)to[n - 1] >= 0xc0;
	}
	to[n] = '\0';
}

static bool get_text(parser_t *p, const json_t *object, const char *key, char *to, size_t nbytes)
{
	const char *text = json_string_value(json_object_get(object, key));

	if (text == NULL)
		return refuse(p, key);
	copy_text(to, nbytes, text);
	return true;
}

static bool get_short(parser_t *p, const json_t *object, const char *key, flight_text_t *to)
{
	return get_text(p, object, key, to->text, sizeof(to->text));
}

static bool get_integer(parser_t *p, const json_t *object, const char *key, int64_t low,
			int64_t high, int64_t *value)
{
	const json_t *json = json_object_get(object, key);

	*value = json_integer_value(json);
	return (json_is_integer(json) && *value >= low && *value <= high) || refuse(p, key);
}

/* Index of the text among the words, which end with NULL. */
static bool get_word(parser_t *p, const json_t *object, const char *key, const char *const *words,
		     int *index)
{
	const char *text = json_string_value(json_object_get(object, key));

	for (*index = 0; text != NULL && words[*index] != NULL; ++*index) {
		if (strcmp(text, words[*index]) == 0)
			return true;
	}
	return refuse(p, key);
}

/* An array, and zeroed memory for its items. */
static bool get_array(parser_t *p, const json_t *object, const char *key, size_t item_nbytes,
		      json_t **array, void **items)
{
	*array = json_object_get(object, key);
	if (!json_is_array(*array))
		return refuse(p, key);
	*items = calloc(json_array_size(*array) + 1, item_nbytes);
	return *items != NULL || refuse(p, "no memory");
}

static bool is_torn(const json_t *json)
{
	return json_is_true(json_object_get(json, "torn"));
}

/* What calls and waits have in common. */
static bool get_call_head(parser_t *p, const json_t *json, uint32_t *number, bool *exchange,
			  flight_text_t *kind, flight_text_t *name)
{
	int64_t n;

	if (!get_integer(p, json, "number", 0, UINT32_MAX, &n) ||
	    !get_short(p, json, "kind", kind) || !get_short(p, json, "name", name))
		return false;
	*number = (uint32_t)n;
	*exchange = strcmp(kind->text, "exchange") == 0;
	return true;
}

static bool get_call(parser_t *p, const json_t *json, flight_call_t *call)
{
	static const char *const states[] = { "running", "complete", "failed", NULL };
	int64_t nbytes;
	int state;

	if (!get_call_head(p, json, &call->number, &call->exchange, &call->kind, &call->name) ||
	    !get_short(p, json, "dtype", &call->dtype) ||
	    !get_integer(p, json, "nbytes", 0, INT64_MAX, &nbytes) ||
	    !get_integer(p, json, "began_us", 0, INT64_MAX, &call->began_us) ||
	    !get_word(p, json, "state", states, &state))
		return false;
	call->nbytes = (uint64_t)nbytes;
	call->running = state == 0;
	call->failed = state == 2;
	return true;
}

static bool get_wait(parser_t *p, const json_t *json, flight_wait_t *wait)
{
	static const char *const reasons[] = { "data", "readers", "itself", NULL };
	const json_t *ranks = json_object_get(json, "ranks");
	const size_t n = json_array_size(ranks);
	int why;

	if (!get_call_head(p, json, &wait->number, &wait->exchange, &wait->kind, &wait->name) ||
	    !get_word(p, json, "for", reasons, &why) ||
	    !get_integer(p, json, "nranks", 0, MAX_WORLD, &wait->nranks) ||
	    !get_integer(p, json, "since_us", 0, INT64_MAX, &wait->since_us))
		return false;
	wait->why = why == 0 ? FLIGHT_FOR_DATA : why == 1 ? FLIGHT_FOR_READERS : FLIGHT_FOR_ITSELF;
	if (!json_is_array(ranks) || n > FLIGHT_NRANKS || (int64_t)n > wait->nranks)
		return refuse(p, "ranks");
	for (size_t i = 0; i < n; i++) {
		const json_t *rank = json_array_get(ranks, i);

		if (!json_is_integer(rank) || json_integer_value(rank) < 0 ||
		    json_integer_value(rank) >= p->file->world_size)
			return refuse(p, "ranks");
		wait->ranks[wait->nlisted++] = (int)json_integer_value(rank);
	}
	return true;
}

/* The ranks of a communicator: different ones in rising order, this one among them. */
static bool get_ranks(parser_t *p, const json_t *json, flight_comm_t *comm)
{
	bool has_mine = false;
	int64_t last = -1;
	json_t *array;
	void *items;

	if (!get_array(p, json, "ranks", sizeof(*comm->ranks), &array, &items))
		return false;
	comm->ranks = items;
	for (size_t i = 0; i < json_array_size(array); i++) {
		const json_t *rank = json_array_get(array, i);
		const int64_t r = json_integer_value(rank);

		if (!json_is_integer(rank) || r <= last || r >= p->file->world_size)
			return refuse(p, "ranks");
		last = r;
		has_mine = has_mine || r == p->file->rank;
		comm->ranks[comm->nranks++] = (int)r;
	}
	return has_mine || refuse(p, "ranks");
}

static bool get_failure(parser_t *p, const json_t *json, flight_comm_t *comm)
{
	const json_t *failure = json_object_get(json, "failure");

	comm->has_failed = failure != NULL;
	return failure == NULL ||
	       (get_short(p, failure, "status", &comm->status) &&
		get_text(p, failure, "text", comm->failure, sizeof(comm->failure)));
}

static bool get_comm(parser_t *p, const json_t *json, flight_comm_t *comm)
{
	json_t *array;
	void *items;

	if (!get_short(p, json, "id", &comm->id) || !get_short(p, json, "name", &comm->name) ||
	    !get_ranks(p, json, comm) || !get_failure(p, json, comm) ||
	    !get_array(p, json, "waits", sizeof(*comm->waits), &array, &items))
		return false;
	comm->waits = items;
	for (size_t i = 0; i < json_array_size(array); i++) {
		if (is_torn(json_array_get(array, i)))
			continue;
		if (!get_wait(p, json_array_get(array, i), &comm->waits[comm->nwaits]))
			return false;
		comm->nwaits++;
	}
	if (!get_array(p, json, "calls", sizeof(*comm->calls), &array, &items))
		return false;
	comm->calls = items;
	for (size_t i = 0; i < json_array_size(array); i++) {
		if (is_torn(json_array_get(array, i)))
			continue;
		if (!get_call(p, json_array_get(array, i), &comm->calls[comm->ncalls]))
			return false;
		comm->ncalls++;
	}
	return true;
}

static bool get_file(parser_t *p, const json_t *json)
{
	static const char *const reasons[] = { "error", "signal", NULL };
	flight_file_t *file = p->file;
	int64_t world, rank;
	json_t *array;
	void *items;
	int reason;

	if (!get_integer(p, json, "world_size", 1, MAX_WORLD, &world) ||
	    !get_integer(p, json, "rank", 0, world - 1, &rank) ||
	    !get_short(p, json, "job", &file->job) || !get_short(p, json, "host", &file->host) ||
	    !get_word(p, json, "reason", reasons, &reason) ||
	    !get_integer(p, json, "pid", 0, INT64_MAX, &file->pid) ||
	    !get_integer(p, json, "monotonic_us", 0, INT64_MAX, &file->monotonic_us) ||
	    !get_array(p, json, "communicators", sizeof(*file->comms), &array, &items))
		return false;
	file->world_size = (int)world;
	file->rank = (int)rank;
	file->by_signal = reason == 1;
	file->comms = items;
	if (json_array_size(array) > MAX_COMMS)
		return refuse(p, "communicators");
	for (size_t i = 0; i < json_array_size(array); i++) {
		file->ncomms++;
		if (!get_comm(p, json_array_get(array, i), &file->comms[i]))
			return false;
	}
	return true;
}

/* Whether the objects and arrays are as long as those of the flight recorder: at least 12 bytes on
 * average. The memory that jansson takes for an empty one is 77 times its length. */
static bool has_content(const char *text, size_t nbytes)
{
	size_t n = 0;

	for (size_t i = 0; i < nbytes; i++)
		n += text[i] == '{' || text[i] == '[';
	return n <= 64 + nbytes / 12;
}

int flight_parse(const char *text, size_t nbytes, flight_file_t *file, char why[256])
{
	const bool has = has_content(text, nbytes);
	parser_t p = { .file = file };
	json_error_t error = { .line = 0 };
	json_t *json = has ? json_loadb(text, nbytes, JSON_REJECT_DUPLICATES, &error) : NULL;
	int64_t version;
	bool good = false;

	file->comms = NULL;
	file->ncomms = 0;
	if (!has) {
		snprintf(why, 256, "not a file of the flight recorder: it has too many objects");
	} else if (json == NULL) {
		char shown[151]; /* jansson repeats what it does not know */

		copy_text(shown, sizeof(shown), error.text);
		snprintf(why, 256, "line %d: not JSON, or cut: %s", error.line, shown);
	} else if (!get_integer(&p, json, "shardrt_flight", 0, INT64_MAX, &version)) {
		snprintf(why, 256, "not a file of the flight recorder");
	} else if (version != FLIGHT_VERSION) {
		snprintf(why, 256,
			 "version %" PRId64 " of the format; this program reads version %d",
			 version, FLIGHT_VERSION);
	} else {
		good = get_file(&p, json);
		if (!good)
			snprintf(why, 256, "the value of \"%s\" is missing or malformed", p.fault);
	}
	json_decref(json);
	if (!good)
		flight_clear(file);
	return good ? 0 : -1;
}
#else
int flight_parse(const char *text, size_t nbytes, flight_file_t *file, char why[256])
{
	(void)text;
	(void)nbytes;
	file->comms = NULL;
	file->ncomms = 0;
	snprintf(why, 256, "this build lacks jansson (configure --with-jansson), which parses it");
	return -1;
}
#endif

void flight_clear(flight_file_t *file)
{
	for (size_t i = 0; i < file->ncomms; i++) {
		free(file->comms[i].ranks);
		free(file->comms[i].waits);
		free(file->comms[i].calls);
	}
	free(file->comms);
	file->comms = NULL;
	file->ncomms = 0;
}
