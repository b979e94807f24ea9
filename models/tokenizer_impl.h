/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parts of a tokenizer (<shardrt/models/tokenizer.h>), in the order in which a text meets them:
 *
 *     added tokens     found in the text, and after normalization (tokenizer_added.c)
 *     normalizer       steps that rewrite the text between them (tokenizer_normalize.c)
 *     pre-tokenizer    steps that cut it into pieces (tokenizer_encode.c, tokenizer_pattern.c)
 *     BPE              makes the ids of a piece (bpe.c)
 *     decoder          steps that join the tokens of ids again (tokenizer_decode.c)
 *
 * tokenizer_read.c makes them of a tokenizer.json, which is hostile input; nothing changes them
 * after that. What a call of encode or decode needs is on its stack or its own.
 */
#ifndef SRT_MODELS_TOKENIZER_IMPL_H
#define SRT_MODELS_TOKENIZER_IMPL_H

#include <stdbool.h>

#include <shardrt/models/tokenizer.h>

#include "models/bpe.h"
#include "models/string.h"
#include "models/tokenizer_pattern.h"
#include "models/try.h"

/** Steps of each kind, and levels of sequences in sequences, that are accepted. */
#define SRT_TOKENIZER_STEPS 32
#define SRT_TOKENIZER_DEPTH 8
/** The longest added token in bytes: a search takes at most this many steps at each byte. */
#define SRT_TOKENIZER_ADDED_NBYTES 4096

/** What a step does. */
typedef enum srt_tokenizer_kind {
	/* normalizers: text -> text */
	SRT_STEP_UNICODE, /* flags: those of utf8proc_map() */
	SRT_STEP_PREPEND, /* text before a text that is not empty */
	SRT_STEP_REPLACE, /* pattern by text; also a decoder */
	/* pre-tokenizers: piece -> pieces */
	SRT_STEP_SPLIT,      /* by pattern */
	SRT_STEP_BYTE_LEVEL, /* each byte is a character; also a decoder */
	SRT_STEP_METASPACE,  /* text for blanks; also a decoder */
	/* decoders: tokens -> tokens */
	SRT_STEP_BYTE_FALLBACK, /* <0xNN> is a byte */
	SRT_STEP_FUSE,          /* all tokens become one */
	SRT_STEP_STRIP /* text, one character, at most `start` and `stop` times at the ends */
} srt_tokenizer_kind_t;

/** What becomes of the matches of a split. */
typedef enum srt_tokenizer_behavior {
	SRT_SPLIT_ISOLATED,
	SRT_SPLIT_REMOVED,
	SRT_SPLIT_CONTIGUOUS,
	SRT_SPLIT_PREVIOUS, /* a match is joined to what is before it */
	SRT_SPLIT_NEXT      /* or after it */
} srt_tokenizer_behavior_t;

/** When a Metaspace step puts its character before a piece. */
typedef enum srt_tokenizer_prepend {
	SRT_PREPEND_ALWAYS,
	SRT_PREPEND_FIRST, /* of the piece at the start of the text */
	SRT_PREPEND_NEVER
} srt_tokenizer_prepend_t;

/** A step of a normalizer, pre-tokenizer or decoder. */
typedef struct srt_tokenizer_step {
	srt_tokenizer_kind_t kind;
	srt_pattern_t *pattern; /* of a replacement or split, or NULL; owned */
	srt_string_t text;
	unsigned flags;
	srt_tokenizer_behavior_t behavior;
	srt_tokenizer_prepend_t prepend;
	bool invert;    /* of a split: what is between the matches is the match */
	bool add_blank; /* of a byte level: before a piece that does not begin with one */
	bool split;     /* of a Metaspace: before each of its characters */
	size_t start, stop;
} srt_tokenizer_step_t;

/** Steps, applied in this order. */
typedef struct srt_tokenizer_steps {
	srt_tokenizer_step_t step[SRT_TOKENIZER_STEPS];
	size_t n;
} srt_tokenizer_steps_t;

/** An added token. */
typedef struct srt_added {
	srt_string_t content; /* as in the file; owned */
	srt_string_t text;    /* what is searched for: its normal form if `normalized`; owned */
	int32_t id;
	size_t order; /* of equal texts the first one is found */
	bool special, normalized, single_word, lstrip, rstrip;
} srt_added_t;

/** Added tokens, sorted by text. */
typedef struct srt_added_set {
	srt_added_t *tokens; /* (n), owned */
	size_t n;
	size_t first[257]; /* those that begin with byte b are first[b] .. first[b + 1] */
} srt_added_set_t;

/** A match of an added token: bytes start .. stop of the text, with blanks that it takes. */
typedef struct srt_added_match {
	int32_t id;
	size_t start, stop;
} srt_added_match_t;

struct srt_tokenizer {
	srt_bpe_t bpe;
	srt_string_t *added; /* (nids) what an added token is decoded to, data NULL for others */
	bool *special;       /* (nids) left out if special tokens are skipped */
	size_t nids;
	srt_added_set_t raw, normalized; /* searched for before and after normalization */
	srt_pattern_t *word;             /* a character of a word, for single_word; or NULL */
	srt_tokenizer_steps_t normalizer, pre, decoder;
	bool has_decoder;
	int32_t *prefix, *suffix; /* ids of the template before and after the text */
	size_t nprefix, nsuffix;
};

/** Makes a tokenizer of the text of a tokenizer.json. The message of a failure has no path.
 * @param t all zero; freed by the caller also after a failure. */
srt_status_t srt_tokenizer_read(const char *text, size_t nbytes, srt_tokenizer_t *t);

/** Sorts the tokens of a set, all of which it has. */
void srt_added_sort(srt_added_set_t *set);

/** The parts of a text, and where a search is. Special tokens are looked for within each part that
 * is not `plain`. */
typedef struct srt_added_parts {
	const srt_tokenizer_part_t *parts; /* (nparts) that follow each other */
	size_t nparts;
	size_t part, end; /* the first `part` parts have `end` bytes */
} srt_added_parts_t;

/**
 * The next added token in a text, the longest one of those that begin first.
 * @param parts of the text, or NULL. @param from where the search begins.
 * @param covered end of the last match with its blanks. @param[out] match id -1: there is none.
 * @param[out] next where the next search begins. @return the failures of srt_matches_next().
 */
srt_status_t srt_added_find(const srt_added_set_t *set, const srt_pattern_t *word,
			    srt_matcher_t *matcher, const char *text, size_t nbytes,
			    srt_added_parts_t *parts, size_t from, size_t covered,
			    srt_added_match_t *match, size_t *next);

/** Applies normalizing steps. @param is_cut the text continues another one: nothing is put before
 * it. @param text replaced by its normal form. */
srt_status_t srt_tokenizer_normalize(const srt_tokenizer_steps_t *steps, srt_matcher_t *matcher,
				     bool is_cut, srt_string_t *text);

/** Appends a text in which the matches of a step's pattern are replaced by its text. */
srt_status_t srt_tokenizer_replace(const srt_tokenizer_step_t *step, srt_matcher_t *matcher,
				   const char *text, size_t nbytes, srt_string_t *out);

/** The byte that a character means in byte-level BPE; -1 for another character. */
int srt_byte_of_char(uint32_t c);

#endif
