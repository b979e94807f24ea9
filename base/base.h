/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Functions for all layers: error messages, log, values of the configuration, checked size
 * arithmetic, time, allocation. Uses no other layer.
 */
#ifndef SRT_BASE_BASE_H
#define SRT_BASE_BASE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shardrt/config.h>
#include <shardrt/dtype.h>
#include <shardrt/log.h>
#include <shardrt/status.h>

#include "base/clock.h"

#define SRT_PRINTF(f, a) __attribute__((format(printf, f, a)))

/* The one macro that hides a return: passes a failure on. */
#define SRT_TRY(expr)                                                                              \
	do {                                                                                       \
		srt_status_t srt_try_status_ = (expr);                                             \
		if (srt_try_status_ != SRT_OK)                                                     \
			return srt_try_status_;                                                    \
	} while (0)

#define SRT_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* The thread's last error, with its terminating zero. A longer one is cut and ends with "...". */
typedef struct srt_error_text {
	char text[1024];
} srt_error_text_t;

/* Sets the thread's last error and returns status. The message: what, where, which, what to do. */
srt_status_t srt_fail(srt_status_t status, const char *format, ...) SRT_PRINTF(2, 3);
/* Puts a clause in front of the last error ("unit block3: ..."); returns status. */
srt_status_t srt_fail_prefix(srt_status_t status, const char *format, ...) SRT_PRINTF(2, 3);

/* Around calls whose failure is not the caller's: the last error stays what it was. */
void srt_error_save(srt_error_text_t *saved);
void srt_error_restore(const srt_error_text_t *saved);

/* SRT_ERR_INVALID_ARGUMENT, with a sentence that names the public function and its argument, if the
 * pointer is NULL. A public function makes these checks before all others. */
srt_status_t srt_check_not_null(const void *pointer, const char *call, const char *argument);
#define SRT_NOT_NULL(argument) SRT_TRY(srt_check_not_null((argument), __func__, #argument))

/*
 * Public structs grow: `size_t size`, their first field, is sizeof() in the header that the program
 * was compiled with. SRT_..._INIT sets it, and the defaults of the fields.
 *
 * srt_struct_read() copies a program's struct over `full`, which is SRT_..._INIT of this library:
 * fields that the program's header does not have keep their defaults. NULL is the defaults. A
 * newer header's additional fields must be zero.
 * Errors: SRT_ERR_INVALID_ARGUMENT if size is not set, SRT_ERR_UNSUPPORTED for a newer field.
 */
srt_status_t srt_struct_read(void *full, size_t full_nbytes, const void *given, const char *type);
/* Copies `full` to a program's struct, as far as that reaches; the rest of a larger one becomes
 * zero. Errors: SRT_ERR_INVALID_ARGUMENT if size is not set. */
srt_status_t srt_struct_write(void *given, const void *full, size_t full_nbytes, const char *type);
/* Refuses a struct whose size is not set, where it is read or filled after other checks; NULL is
 * not refused. */
srt_status_t srt_struct_check(const void *given, const char *type);
/* Element i of a program's array of such structs, all of which have the size of the first. */
const void *srt_struct_at(const void *array, size_t i);

void srt_log(srt_log_level_t level, const char *format, ...) SRT_PRINTF(2, 3);
bool srt_log_enabled(srt_log_level_t level);

/* Values of the configuration table by name (must be in the table), already validated: a malformed
 * value was reported by srt_config_check_all() at context creation; here it reads as the
 * default. */
const char *srt_config_string(const char *name);
int64_t srt_config_int(const char *name);
double srt_config_seconds(const char *name);
bool srt_config_bool(const char *name);
size_t srt_config_size(const char *name);
/* Whether a variable is set to nothing, which counts as not set elsewhere. */
bool srt_config_is_empty(const char *name);
/* A variable of another program, e.g. of a launcher; NULL = not set, or set to nothing. */
const char *srt_config_foreign(const char *name);
/* A number of ranks, or a rank's number, that another launcher sets; -1 = not set, or to nothing.
 * Errors: SRT_ERR_INVALID_ARGUMENT for another text. */
srt_status_t srt_config_foreign_int(const char *name, int *value);
/* The first malformed value of the environment as an error. */
srt_status_t srt_config_check_all(void);

/* The user's folder for caches (it may not exist yet). false: there is none, or it is too long. */
bool srt_config_cache_dir(char *path, size_t path_nbytes);
/* Sets a variable of another library for this process, unless the user has set it. */
void srt_config_set_default(const char *name, const char *value);

/* false on overflow. */
static inline bool srt_mul_size(size_t a, size_t b, size_t *r)
{
	return !__builtin_mul_overflow(a, b, r);
}
static inline bool srt_add_size(size_t a, size_t b, size_t *r)
{
	return !__builtin_add_overflow(a, b, r);
}
/* Rounds up to a multiple of align (a power of two); the result must not overflow. */
static inline size_t srt_align_up(size_t n, size_t align)
{
	return (n + align - 1) & ~(align - 1);
}

/* Bytes of one element. */
static inline size_t srt_dtype_size(srt_dtype_t dtype)
{
	return srt_dtype_bits(dtype) / 8;
}
/* What an option that is a dtype means for a tensor of the dtype `as_it_is`. */
static inline srt_dtype_t srt_dtype_or(srt_dtype_t dtype, srt_dtype_t as_it_is)
{
	return dtype == SRT_DTYPE_NONE ? as_it_is : dtype;
}

/* The dtypes of parameters and gradients. */
static inline bool srt_dtype_is_float(srt_dtype_t dtype)
{
	return dtype == SRT_F32 || dtype == SRT_F16 || dtype == SRT_BF16;
}

static inline int64_t srt_min64(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static inline int64_t srt_max64(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* cores.c: cores that this process may use, by its affinity and the CPU quotas of its cgroups.
 * Reads files: not for each step. */
int srt_available_cores(void);
/* ncores, lowered to the quotas that the files below root/proc and root/sys give; at least 1. */
int srt_limit_cores(int ncores, const char *root);

/* The folder `name` of the user's cache, created if necessary. false (and a debug log) on failure,
 * if others may write to it, and in a program with raised rights (AT_SECURE). */
bool srt_cache_folder(const char *name, char *path, size_t path_nbytes);

/* hash.c: 64 well mixed bits of a and b; a hash of bytes that continues from h. */
uint64_t srt_mix64(uint64_t a, uint64_t b);
uint64_t srt_hash64(uint64_t h, const void *data, size_t nbytes);

/* Rows [*offset, *offset + *size) of nrows belong to `rank` of nranks: chunks of ceil(nrows /
 * nranks), as torch.chunk() cuts. The last ranks may have fewer rows or none. */
void srt_shard_rows(int64_t nrows, int nranks, int rank, int64_t *offset, int64_t *size);

/* pthread_create() of a thread that handles no signals: they are for the program's own threads.
 * Returns an errno, or 0. */
int srt_thread_create(pthread_t *thread, void *(*run)(void *arg), void *arg);

/* Zeroed host memory; NULL on failure, with the last error set (what = for the message). */
void *srt_calloc(size_t n, size_t size, const char *what);
void *srt_realloc(void *p, size_t n, size_t size, const char *what);
/* An array with memory for n elements: this one, or a reallocated one with at least twice the
 * *room. An empty array is NULL with room 0. NULL on failure: array and room are unchanged. */
void *srt_grow(void *array, size_t n, size_t *room, size_t size, const char *what);
char *srt_strdup(const char *s);
char *srt_asprintf(const char *format, ...) SRT_PRINTF(1, 2);
/* Edits (insert, delete, replace) that turn the first na bytes of a into b; SIZE_MAX if a or b is
 * too long. */
size_t srt_count_edits(const char *a, size_t na, const char *b);
/* Length of the UTF-8 sequence that a text, which a zero ends, begins with; 0 if it is malformed:
 * overlong, a surrogate, cut. */
size_t srt_utf8_length(const char *text);

#endif
