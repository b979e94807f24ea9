/* SPDX-License-Identifier: BSD-3-Clause */
/* A line of JSON -> messages, or tokens; see sft.h. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "models/data/sft_impl.h"

#include <stdlib.h>
#include <string.h>

#include "models/string.h"
#include "models/try.h"

#ifdef HAVE_JANSSON
#include <jansson.h>

/* The most values of a line: jansson takes up to 50 bytes for one of two. */
#define MOST_VALUES (1 << 20)

static const char *const roles[SRT_CHAT_ROLES] = { "system", "user", "assistant" };

/* About the values of a text of JSON: the brackets and commas outside of its strings. */
static size_t count_values(const char *text, size_t nbytes)
{
	bool in_string = false;
	size_t n = 0;

	for (size_t i = 0; i < nbytes; i++) {
		if (text[i] == '"')
			in_string = !in_string;
		else if (in_string)
			i += text[i] == '\\';
		else
			n += text[i] == '{' || text[i] == '[' || text[i] == ',';
	}
	return n;
}

static const char *name_type(const json_t *json)
{
	static const char *const names[] = {
		[JSON_OBJECT] = "an object", [JSON_ARRAY] = "a list",  [JSON_STRING] = "a text",
		[JSON_INTEGER] = "a number", [JSON_REAL] = "a number", [JSON_TRUE] = "true",
		[JSON_FALSE] = "false",      [JSON_NULL] = "null",
	};

	return names[json_typeof(json)];
}

/* Checks that an object has these two keys and no other. @param what it is. */
static srt_status_t check_keys(const json_t *object, const char *what, const char *first,
			       const char *second)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)object, key, value)
	{
		if (strcmp(key, first) != 0 && (second == NULL || strcmp(key, second) != 0))
			return srt_model_fail(SRT_ERR_FORMAT,
					      "%s has the key \"%s\", which nothing reads", what,
					      srt_string_show(key).text);
	}
	if (json_object_get(object, first) == NULL ||
	    (second != NULL && json_object_get(object, second) == NULL))
		return srt_model_fail(SRT_ERR_FORMAT, "%s has no \"%s\"", what,
				      json_object_get(object, first) == NULL ? first : second);
	return SRT_OK;
}

/* @param what the text is, for messages. */
static srt_status_t read_text(const json_t *json, const char *what, srt_chat_role_t role,
			      srt_chat_message_t *message)
{
	if (!json_is_string(json))
		return srt_model_fail(SRT_ERR_FORMAT, "%s is %s, not a text", what,
				      name_type(json));
	*message = (srt_chat_message_t){ role, json_string_value(json), json_string_length(json) };
	if (role == SRT_CHAT_ASSISTANT && !srt_chat_has_text(message->text, message->nbytes))
		return srt_model_fail(SRT_ERR_FORMAT, "the answer is empty: %s has no text", what);
	return SRT_OK;
}

static srt_status_t allocate(size_t n, srt_sft_line_t *line)
{
	line->messages = calloc(n, sizeof(*line->messages));
	line->nmessages = n;
	return line->messages != NULL ?
		       SRT_OK :
		       srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory for an example");
}

static srt_status_t read_pair(const json_t *object, srt_sft_line_t *line)
{
	SRT_TRY(check_keys(object, "the example", "prompt", "completion"));
	SRT_TRY(allocate(2, line));
	line->is_pair = true;
	SRT_TRY(read_text(json_object_get(object, "prompt"), "\"prompt\"", SRT_CHAT_USER,
			  &line->messages[0]));
	return read_text(json_object_get(object, "completion"), "\"completion\"",
			 SRT_CHAT_ASSISTANT, &line->messages[1]);
}

static srt_status_t read_role(const json_t *json, size_t i, srt_chat_role_t *role)
{
	if (!json_is_string(json))
		return srt_model_fail(SRT_ERR_FORMAT,
				      "the \"role\" of message %zu is %s, not a text", i + 1,
				      name_type(json));
	for (int r = 0; r < SRT_CHAT_ROLES; r++) {
		if (strcmp(json_string_value(json), roles[r]) != 0)
			continue;
		*role = (srt_chat_role_t)r;
		return SRT_OK;
	}
	return srt_model_fail(SRT_ERR_FORMAT,
			      "message %zu is of the role \"%s\"; possible are system, user and "
			      "assistant",
			      i + 1, srt_string_show(json_string_value(json)).text);
}

static srt_status_t read_message(const json_t *json, size_t i, srt_chat_message_t *message)
{
	srt_chat_role_t role = SRT_CHAT_USER;
	char what[64];

	snprintf(what, sizeof(what), "message %zu", i + 1);
	if (!json_is_object(json))
		return srt_model_fail(SRT_ERR_FORMAT, "%s is %s, not an object", what,
				      name_type(json));
	SRT_TRY(check_keys(json, what, "role", "content"));
	SRT_TRY(read_role(json_object_get(json, "role"), i, &role));
	snprintf(what, sizeof(what), "the \"content\" of message %zu", i + 1);
	return read_text(json_object_get(json, "content"), what, role, message);
}

/* An optional message of the system, then users and assistants in turn, the last an assistant. */
static srt_status_t check_order(const srt_sft_line_t *line)
{
	const size_t n = line->nmessages;
	const size_t first = n > 0 && line->messages[0].role == SRT_CHAT_SYSTEM;

	for (size_t i = first; i < n; i++) {
		const srt_chat_role_t role = line->messages[i].role;
		const srt_chat_role_t wanted =
			(i - first) % 2 == 0 ? SRT_CHAT_USER : SRT_CHAT_ASSISTANT;

		if (role != wanted)
			return srt_model_fail(
				SRT_ERR_FORMAT,
				"message %zu is of the role %s, where %s is expected: "
				"users and assistants take turns, after one message "
				"of the system or none",
				i + 1, roles[role], roles[wanted]);
	}
	if (n == first)
		return srt_model_fail(SRT_ERR_FORMAT, "there is no answer: it has %s",
				      n == 0 ? "no messages" : "a message of the system only");
	if (line->messages[n - 1].role != SRT_CHAT_ASSISTANT)
		return srt_model_fail(SRT_ERR_FORMAT, "there is no answer to the last message");
	return SRT_OK;
}

static srt_status_t read_messages(const json_t *object, srt_sft_line_t *line)
{
	const json_t *list = json_object_get(object, "messages");

	SRT_TRY(check_keys(object, "the example", "messages", NULL));
	if (!json_is_array(list))
		return srt_model_fail(SRT_ERR_FORMAT, "\"messages\" is %s, not a list",
				      name_type(list));
	SRT_TRY(allocate(json_array_size(list) + 1, line));
	line->nmessages--;
	for (size_t i = 0; i < line->nmessages; i++)
		SRT_TRY(read_message(json_array_get(list, i), i, &line->messages[i]));
	return check_order(line);
}

/* ---- tokens ----------------------------------------------------------------------------- */

/* The label of a token that is not predicted, as transformers has it. */
#define NO_LABEL (-100)

/* Token i, and whether it is predicted. Nothing predicts the first. */
static srt_status_t read_id(const json_t *ids, const json_t *labels, size_t i, srt_sft_line_t *line)
{
	const json_t *id = json_array_get(ids, i);
	const json_t *label = labels != NULL ? json_array_get(labels, i) : id;

	if (!json_is_integer(id) || json_integer_value(id) < 0 ||
	    json_integer_value(id) > INT32_MAX)
		return srt_model_fail(SRT_ERR_FORMAT, "element %zu of \"input_ids\" is no token",
				      i + 1);
	if (!json_equal(id, label) &&
	    (!json_is_integer(label) || json_integer_value(label) != NO_LABEL))
		return srt_model_fail(SRT_ERR_FORMAT,
				      "element %zu of \"labels\" is neither that of \"input_ids\" "
				      "nor %d",
				      i + 1, NO_LABEL);
	line->ids[i] = (int32_t)json_integer_value(id);
	line->is_answer[i] = i > 0 && json_integer_value(label) != NO_LABEL;
	return SRT_OK;
}

static srt_status_t read_tokens(const json_t *object, srt_sft_line_t *line)
{
	const json_t *ids = json_object_get(object, "input_ids");
	const json_t *labels = json_object_get(object, "labels");
	const size_t n = json_array_size(ids);

	SRT_TRY(check_keys(object, "the example", "input_ids", labels != NULL ? "labels" : NULL));
	if (!json_is_array(ids) || (labels != NULL && !json_is_array(labels)))
		return srt_model_fail(SRT_ERR_FORMAT, "\"%s\" is %s, not a list",
				      json_is_array(ids) ? "labels" : "input_ids",
				      name_type(json_is_array(ids) ? labels : ids));
	if (labels != NULL && json_array_size(labels) != n)
		return srt_model_fail(SRT_ERR_FORMAT,
				      "there are %zu \"input_ids\", but %zu \"labels\"", n,
				      json_array_size(labels));
	line->ids = calloc(n + 1, sizeof(*line->ids));
	line->is_answer = calloc(n + 1, 1);
	if (line->ids == NULL || line->is_answer == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory for an example");
	for (size_t i = 0; i < n; i++)
		SRT_TRY(read_id(ids, labels, i, line));
	line->nids = n;
	if (memchr(line->is_answer, 1, n) == NULL)
		return srt_model_fail(SRT_ERR_FORMAT, "no token after the first is predicted");
	return SRT_OK;
}

/* ---- a line ----------------------------------------------------------------------------- */

srt_status_t srt_sft_line_read(const char *text, size_t nbytes, srt_sft_line_t *line)
{
	json_error_t error = { .line = 0 };
	json_t *root;

	if (count_values(text, nbytes) > MOST_VALUES)
		return srt_model_fail(SRT_ERR_FORMAT, "it has more than %d values", MOST_VALUES);
	line->json = root =
		json_loadb(text, nbytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
	if (root == NULL)
		return srt_model_fail(SRT_ERR_FORMAT, "not JSON: %s",
				      srt_string_show(error.text).text);
	if (!json_is_object(root))
		return srt_model_fail(SRT_ERR_FORMAT, "it is %s, not an object", name_type(root));
	if (json_object_get(root, "messages") != NULL)
		return read_messages(root, line);
	if (json_object_get(root, "prompt") != NULL || json_object_get(root, "completion") != NULL)
		return read_pair(root, line);
	if (json_object_get(root, "input_ids") != NULL)
		return read_tokens(root, line);
	return srt_model_fail(SRT_ERR_FORMAT, "it has neither \"messages\" nor \"prompt\" and "
					      "\"completion\" nor \"input_ids\"");
}

void srt_sft_line_clear(srt_sft_line_t *line)
{
	json_decref(line->json);
	free(line->messages);
	free(line->ids);
	free(line->is_answer);
	*line = (srt_sft_line_t){ .json = NULL };
}
#else
srt_status_t srt_sft_line_read(const char *text, size_t nbytes, srt_sft_line_t *line)
{
	(void)text, (void)nbytes, (void)line;
	return srt_model_fail(SRT_ERR_UNSUPPORTED,
			      "examples of JSON need jansson, but the library was built without "
			      "it: install it (Debian: libjansson-dev) and configure again");
}

void srt_sft_line_clear(srt_sft_line_t *line)
{
	(void)line;
}
#endif
