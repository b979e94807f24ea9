/* SPDX-License-Identifier: BSD-3-Clause */
/* A plain reader of GGUF files, from the description of the format, for test_gguf. */
#ifndef SRT_TESTS_GGUF_FILE_H
#define SRT_TESTS_GGUF_FILE_H

#include <stddef.h>
#include <stdint.h>

/** A string of the file. */
typedef struct gguf_text {
	const char *data;
	size_t n;
} gguf_text_t;

/** A key: a number, a string, or an array of them. */
typedef struct gguf_key {
	char name[96];
	uint32_t type, of; /* type; of the values of an array */
	size_t n;          /* values of an array, else 1 */
	double number;
	double *numbers;    /* of an array, owned */
	gguf_text_t *texts; /* of a string or an array, owned */
} gguf_key_t;

/** A tensor; ne as in the file: the innermost dimension first. */
typedef struct gguf_tensor {
	char name[96];
	uint32_t ndim, type;
	uint64_t ne[4];
	const unsigned char *data;
	size_t nbytes;
	int used;
} gguf_tensor_t;

typedef struct gguf_file {
	unsigned char *bytes;
	size_t nbytes, at;
	size_t nkeys, ntensors;
	gguf_key_t *keys;
	gguf_tensor_t *tensors;
} gguf_file_t;

/** Reads and checks a file: version 3, distinct names, places at multiples of 32 that follow each
 * other to the end. Ends the program otherwise. */
void gguf_read(const char *path, gguf_file_t *f);
void gguf_free(gguf_file_t *f);
/** NULL if there is none. */
const gguf_key_t *gguf_find(const gguf_file_t *f, const char *name);
/** Prints the keys, a line each, then the tensors: "tensor NAME TYPE [NE,NE]". */
void gguf_print(const gguf_file_t *f);

/** The value of a float of 16 bits with this many bits of fraction: 10 in F16, 7 in BF16. */
double gguf_decode(uint16_t bits, int fraction);
/** The number rounded to such a float, to nearest even. */
double gguf_round(double x, int fraction);

#endif
