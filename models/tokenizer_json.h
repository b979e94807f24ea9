/* SPDX-License-Identifier: BSD-3-Clause */
/* Values and steps of a tokenizer.json, for tokenizer_read.c. Needs jansson. */
#ifndef SRT_MODELS_TOKENIZER_JSON_H
#define SRT_MODELS_TOKENIZER_JSON_H

#include <jansson.h>

#include "models/tokenizer_impl.h"

/** Says that a value is not supported. @param possible what is. @return SRT_ERR_UNSUPPORTED. */
srt_status_t srt_json_refuse(const char *where, const char *key, const json_t *value,
			     const char *possible);

/** Checks that an object has no other keys. @param keys each with a blank before and after it.
 * @return SRT_ERR_FORMAT if it is not an object, SRT_ERR_UNSUPPORTED. */
srt_status_t srt_json_check_keys(const char *where, const json_t *object, const char *keys);

/** A string; "" for another value. */
const char *srt_json_text(const json_t *json);

/** A truth value. @param absent what it is without the key. @return SRT_ERR_FORMAT. */
srt_status_t srt_json_get_bool(const char *where, const json_t *object, const char *key,
			       bool absent, bool *value);

/** Reads a normalizer; NULL and null have no steps. */
srt_status_t srt_json_read_normalizer(const json_t *json, srt_tokenizer_steps_t *steps);
/** Reads a pre-tokenizer; NULL and null have no steps. */
srt_status_t srt_json_read_pre(const json_t *json, srt_tokenizer_steps_t *steps);
/** Reads a decoder; NULL and null have no steps. */
srt_status_t srt_json_read_decoder(const json_t *json, srt_tokenizer_steps_t *steps);

/** Reads what a post-processor puts before and after a text, after the tokens. */
srt_status_t srt_json_read_template(const json_t *json, srt_tokenizer_t *t);

#endif
