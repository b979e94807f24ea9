/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The configuration table and its values. Only this file reads the environment.
 *
 * A variable is added by a row of `table`, in the order of names. A row's default must itself be
 * valid (tests/base/test_config.c checks). A variable that is set to nothing counts as not set.
 * docs/environment.md is made from this table by `shardrt-info --config-page`.
 */
#include "base/base.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <unistd.h>

#define PREFIX "SHARDRT_"
#define MAX_RANKS 1048576 /* of variables of other launchers, as of SHARDRT_WORLD_SIZE */

static const srt_config_entry_t table[] = {
	{ "SHARDRT_ADDRESS", SRT_CONFIG_STRING, "", "", "",
	  "Of rank 0: its network address that the other nodes connect to, if the launcher names none. "
	  "Empty: that of the first interface which is up, or the first host of shardrun --hosts." },
	{ "SHARDRT_AUDIT", SRT_CONFIG_BOOL, "0", "", "",
	  "1: engines check each sum of gradients over ranks, on the host (docs/errors.md). Results "
	  "do not depend on it. The same on all ranks." },
	{ "SHARDRT_BACKEND", SRT_CONFIG_STRING, "auto", "", "",
	  "Backend: cpu, opencl (or xpu), cuda, or the name of another backend that is installed as "
	  "a module. auto: cuda, else a GPU or accelerator of opencl, else cpu." },
	{ "SHARDRT_BIND", SRT_CONFIG_ENUM, "auto", "", "auto|no|yes",
	  "Bind the ranks of a node to disjoint cores. auto: if hwloc is compiled in and the node "
	  "has a core for each thread." },
	{ "SHARDRT_BOOTSTRAP", SRT_CONFIG_STRING, "", "", "",
	  "How this process finds the other ranks (docs/launchers.md). unix:@NAME: as set by shardrun. "
	  "tcp:HOST:PORT: rank 0 listens there. pmix or torchrun: that launcher, if several are found. "
	  "none, or set to an empty string: one rank alone. Not set: the launcher that is found." },
	{ "SHARDRT_CACHE_DIR", SRT_CONFIG_STRING, "", "", "",
	  "Folder for programs that were compiled for a device. Empty: shardrt in $XDG_CACHE_HOME or "
	  "in ~/.cache. Only this user may be able to write to it, else it is not used. It may be "
	  "removed at any time." },
	{ "SHARDRT_CHECK", SRT_CONFIG_BOOL, "0", "", "",
	  "1: engines look for mistakes of the program (docs/errors.md), at several times the "
	  "cost. Results of a right program do not depend on it. The same on all ranks." },
	{ "SHARDRT_COLLECTIVES", SRT_CONFIG_ENUM, "auto", "", "auto|shm|staged|nccl|ucx",
	  "How bytes move between ranks. shm: ranks read each other's device memory, or are staged "
	  "where they cannot map it. staged: through host memory, if any rank asks for it. nccl: NCCL "
	  "for the world communicator; groups are staged. ucx: messages by UCX, also within a node. "
	  "auto: ucx between nodes, with shared memory within each; on one node nccl if all ranks have the same version and a "
	  "device each, and its first collective works; else shm. Exact results do not depend on it. "
	  "The same on all ranks." },
	{ "SHARDRT_CPU_ISA", SRT_CONFIG_ENUM, "auto", "", "auto|baseline|avx2|avx512|neon",
	  "Instruction set of the CPU kernels. auto: the best one of the processor. "
	  "Results do not depend on it." },
	{ "SHARDRT_CPU_STREAMS", SRT_CONFIG_ENUM, "auto", "", "auto|inline|threads",
	  "How CPU streams run. inline: at once on the thread of the caller; threads: each on a "
	  "separate thread; auto: inline with one compute thread. Results do not depend on it." },
	{ "SHARDRT_CUBLASLT_LIBRARY", SRT_CONFIG_STRING, "", "", "",
	  "Library that the cuda backend loads for matrix products in numerics mode fast: a name for "
	  "the dynamic linker, or a path. Empty: cuBLASLt of the major version of the toolkit." },
	{ "SHARDRT_CUDA_DRIVER", SRT_CONFIG_STRING, "libcuda.so.1", "", "",
	  "Library of the CUDA driver, which the cuda backend loads: a name for the dynamic linker, or a path." },
	{ "SHARDRT_CUDA_FP32", SRT_CONFIG_ENUM, "ieee", "", "ieee|tf32",
	  "Operands of fp32 matrix products in numerics mode fast on cuda. ieee: fp32; tf32: rounded "
	  "to TF32 (10 bits of mantissa), for tensor cores." },
	{ "SHARDRT_CUDA_TUNED", SRT_CONFIG_ENUM, "auto", "", "auto|portable|tiled",
	  "Kernels for matrix products and attention on a CUDA device. portable: the portable "
	  "kernels; tiled: tiles in shared memory; auto: tiled, if it passes the selftest. Results "
	  "do not depend on it." },
	{ "SHARDRT_DEVICE", SRT_CONFIG_STRING, "", "", "",
	  "Device of the backend. Empty: the ranks of a node are spread over all devices." },
	{ "SHARDRT_FLIGHT", SRT_CONFIG_STRING, "", "", "",
	  "Folder in which each rank writes its last collectives, and what it waits for, to a file "
	  "rank-N.json: when a communicator fails, and at SIGUSR1 unless the program handles that "
	  "signal. Made if it does not exist. After a restart by the launcher: its folder restart-M. "
	  "shardrt-info --flight compares the files (docs/errors.md). Empty: no files." },
	{ "SHARDRT_HEARTBEAT", SRT_CONFIG_TIME, "20", "s", "0.5..1e6",
	  "A node that sends nothing for this long is lost: its host or the network is down. The "
	  "ranks of other nodes then fail. Must be the same on all ranks." },
	{ "SHARDRT_LOAD_COPIES", SRT_CONFIG_ENUM, "no", "", "no|yes",
	  "Whether ranks may load a checkpoint from different files that have the same size, header "
	  "and time of the last write: copies, or a file system that each rank has mounted "
	  "separately. It takes effect if it is yes on all ranks." },
	{ "SHARDRT_LOCAL_RANK", SRT_CONFIG_INT, "0", "", "0..1048575",
	  "Rank among the ranks of this node; set by the launcher." },
	{ "SHARDRT_LOCAL_SIZE", SRT_CONFIG_INT, "1", "", "1..1048576",
	  "Number of ranks on this node; set by the launcher." },
	{ "SHARDRT_LOG", SRT_CONFIG_ENUM, "warn", "", "none|error|warn|info|debug|trace",
	  "Level of the library's log, which is printed on standard error unless a program takes it with srt_log_set()." },
	{ "SHARDRT_MEMORY_MARGIN", SRT_CONFIG_INT, "100", "percent", "0..1000",
	  "Reserve for device memory that the driver and its libraries may allocate later, in percent "
	  "of the estimate. It is kept free when a memory plan is checked; 0: no reserve." },
	{ "SHARDRT_MODULE_PATH", SRT_CONFIG_STRING, "", "", "",
	  "Folders separated by ':' that are searched for modules of backends, "
	  "shardrt_backend_NAME.so, before the folders near the library and the folder that "
	  "configure named. Needed only for modules that were not installed with the library." },
	{ "SHARDRT_NCCL_LIBRARY", SRT_CONFIG_STRING, "libnccl.so.2", "", "",
	  "The NCCL library, which the cuda backend loads for collectives: a name that the dynamic linker finds, or a path." },
	{ "SHARDRT_NUMERICS", SRT_CONFIG_ENUM, "default", "", "default|exact|fast",
	  "exact: every bit as docs/numerics.md defines it, on every device. fast: on cuda "
	  "matrix products may use cuBLASLt, and attention tensor cores; on the CPU products may "
	  "use oneDNN with bf16 operands, if these libraries are installed. default: exact." },
	{ "SHARDRT_OPENCL_LANES", SRT_CONFIG_ENUM, "auto", "", "auto|items|loop",
	  "How an OpenCL device runs the lanes of a kernel. items: as work-items; loop: as a loop in "
	  "one work-item; auto: loop on devices of CPU type. Results do not depend on it." },
	{ "SHARDRT_OPENCL_TUNED", SRT_CONFIG_ENUM, "auto", "",
	  "auto|portable|vector|vector4|vector8|vector16|tiled|tiled8",
	  "Kernels for matrix products and attention on an OpenCL device. portable: the portable "
	  "kernels; vector: vectors of 4, 8 or 16 floats, or of the device's width; tiled: tiles in "
	  "local memory; auto: vector on devices of CPU type, else tiled. Results do not depend on it." },
	{ "SHARDRT_PEER_MEMORY", SRT_CONFIG_ENUM, "auto", "", "auto|no",
	  "Whether peers may map this rank's device memory. If it is no on any rank, or any rank's "
	  "device cannot, collectives are staged through host memory. Results do not depend on it." },
	{ "SHARDRT_PORT", SRT_CONFIG_INT, "29417", "", "1..65535",
	  "TCP port on which rank 0 listens at MASTER_ADDR if torchrun has started ranks on several "
	  "nodes. The same on all ranks; two such jobs on one node need different ports. If it is "
	  "set, shardrun --hosts uses it too, instead of a random one." },
	{ "SHARDRT_PROBE_TIMEOUT", SRT_CONFIG_TIME, "60", "s", "0..1e6",
	  "Limit for a driver to list its devices when it is asked in another process; 0: in this one." },
	{ "SHARDRT_RANK", SRT_CONFIG_INT, "0", "", "0..1048575",
	  "Rank of this process in the job; set by the launcher." },
	{ "SHARDRT_RESTART_COUNT", SRT_CONFIG_INT, "0", "", "0..1000000",
	  "How often the launcher has started the job again, for programs; set by the launcher." },
	{ "SHARDRT_SELFTEST", SRT_CONFIG_ENUM, "auto", "", "auto|no",
	  "auto: a device compares the bits of its kernels with this version's before it uses them, and "
	  "has portable ones where tuned ones fail. no: neither, also in numerics mode exact." },
	{ "SHARDRT_STAGING_BYTES", SRT_CONFIG_SIZE, "4m", "bytes", "1k..1g",
	  "Size of a bounce buffer of staged collectives, in host memory. Each rank has two for "
	  "collectives that copy, two for those that sum, and one more for sums on the device. With "
	  "NCCL, sums have scratch of eight on the device. Must be the same on all ranks." },
	{ "SHARDRT_THREADS", SRT_CONFIG_INT, "0", "threads", "0..4096",
	  "Compute threads of a CPU rank. 0: usable cores divided by the ranks of the node, at least "
	  "1. Results do not depend on it." },
	{ "SHARDRT_TIMEOUT", SRT_CONFIG_TIME, "600", "s", "0.001..1e6",
	  "Deadline of every wait for other ranks; time in which this process is stopped does not "
	  "count. The error names the ranks that are missing." },
	{ "SHARDRT_TOKEN", SRT_CONFIG_STRING, "", "", "",
	  "Secret of the job, which all its ranks know: only processes that have it can join a job "
	  "of several nodes. Set by shardrun and shared by PMIx; else set it to a random text of at "
	  "most 128 characters." },
	{ "SHARDRT_WORLD_SIZE", SRT_CONFIG_INT, "1", "", "1..1048576",
	  "Number of ranks of the job; set by the launcher." },
};

/* A value of any type, parsed. Enum words and strings stay text. */
typedef struct {
	int64_t integer; /* INT, BOOL, SIZE */
	double real;     /* TIME */
} parsed_t;

size_t srt_config_count(void)
{
	return SRT_ARRAY_LEN(table);
}

const srt_config_entry_t *srt_config_at(size_t i)
{
	return i < SRT_ARRAY_LEN(table) ? &table[i] : NULL;
}

static const srt_config_entry_t *find_entry(const char *name)
{
	for (size_t i = 0; i < SRT_ARRAY_LEN(table); i++) {
		if (!strcmp(table[i].name, name))
			return &table[i];
	}
	return NULL;
}

/* ---- parsing -------------------------------------------------------------------------- */

/* Is the word one of the '|'-separated words? */
static bool is_word_of(const char *word, const char *words)
{
	size_t n = strlen(word);

	for (const char *w = words; *w;) {
		size_t len = strcspn(w, "|");

		if (len == n && !memcmp(w, word, n))
			return true;
		w += len + (w[len] != '\0');
	}
	return false;
}

/* Decimal, with a minus or not; strtoll() would take leading blanks too. *end is past the
 * number. */
static bool parse_integer(const char *text, int64_t *value, const char **end)
{
	int64_t v = 0;
	bool minus = *text == '-';
	const char *p = text + minus;

	if (*p < '0' || *p > '9')
		return false;
	for (; *p >= '0' && *p <= '9'; p++) {
		int digit = *p - '0';

		if (__builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, minus ? -digit : digit, &v))
			return false;
	}
	*value = v;
	*end = p;
	return true;
}

/* Decimal fraction with an optional exponent; strtod() would follow the locale's decimal sign and
 * take hex, inf and nan. */
static bool parse_real(const char *text, double *value, const char **end)
{
	const char *p = text;
	double v = 0, scale = 1;
	int64_t exponent = 0;
	bool digits = false;

	for (; *p >= '0' && *p <= '9'; p++, digits = true)
		v = 10 * v + (*p - '0');
	if (*p == '.') {
		for (p++; *p >= '0' && *p <= '9'; p++, digits = true) {
			scale *= 10;
			v += (*p - '0') / scale;
		}
	}
	if (!digits)
		return false;
	if (*p == 'e' && (!parse_integer(p + 1, &exponent, &p) || exponent < -30 || exponent > 30))
		return false;
	for (; exponent > 0; exponent--)
		v *= 10;
	for (; exponent < 0; exponent++)
		v /= 10;
	*value = v;
	*end = p;
	return true;
}

static bool parse_bool(const char *text, int64_t *value)
{
	bool yes = is_word_of(text, "1|yes|on|true");

	*value = yes;
	return yes || is_word_of(text, "0|no|off|false");
}

static bool parse_size(const char *text, int64_t *value, const char **end)
{
	static const char suffix[] = "kmg";
	const char *s;

	if (!parse_integer(text, value, end) || *value < 0)
		return false;
	s = **end ? strchr(suffix, **end) : NULL;
	if (s != NULL) {
		int64_t unit = INT64_C(1) << (10 * (s - suffix + 1));

		++*end;
		if (__builtin_mul_overflow(*value, unit, value))
			return false;
	}
	return true;
}

/* Parses by the entry's type and checks its range. */
static bool parse_value(const srt_config_entry_t *entry, const char *text, parsed_t *value)
{
	const char *dots = strstr(entry->range, "..");
	const char *end = "", *ignored;
	int64_t low, high;
	double real_low, real_high;

	switch (entry->type) {
	case SRT_CONFIG_STRING:
		return true;
	case SRT_CONFIG_ENUM:
		return is_word_of(text, entry->range);
	case SRT_CONFIG_BOOL:
		return parse_bool(text, &value->integer);
	case SRT_CONFIG_INT:
	case SRT_CONFIG_SIZE:
		if (entry->type == SRT_CONFIG_INT ? !parse_integer(text, &value->integer, &end) :
						    !parse_size(text, &value->integer, &end))
			return false;
		if (*end)
			return false;
		return dots == NULL || (parse_size(entry->range, &low, &ignored) &&
					parse_size(dots + 2, &high, &ignored) &&
					value->integer >= low && value->integer <= high);
	case SRT_CONFIG_TIME:
		if (!parse_real(text, &value->real, &end) || *end)
			return false;
		return dots == NULL || (parse_real(entry->range, &real_low, &ignored) &&
					parse_real(dots + 2, &real_high, &ignored) &&
					value->real >= real_low && value->real <= real_high);
	}
	return false;
}

static srt_status_t fail_value(const srt_config_entry_t *entry, const char *text)
{
	static const char *const kind[] = {
		[SRT_CONFIG_STRING] = "text",
		[SRT_CONFIG_ENUM] = "one of ",
		[SRT_CONFIG_INT] = "a whole number in ",
		[SRT_CONFIG_BOOL] = "one of 0|1|no|yes|off|on|false|true",
		[SRT_CONFIG_TIME] = "a number of seconds in ",
		[SRT_CONFIG_SIZE] = "a number of bytes, also with suffix k, m or g, in ",
	};

	return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s=%.100s in the environment: must be %s%s",
			entry->name, text, kind[entry->type],
			entry->type == SRT_CONFIG_BOOL ? "" : entry->range);
}

/* ---- values --------------------------------------------------------------------------- */

srt_status_t srt_config_value(const char *name, const char **value, int *is_set)
{
	SRT_NOT_NULL(name);
	SRT_NOT_NULL(value);

	const srt_config_entry_t *entry = find_entry(name);
	const char *text;
	parsed_t parsed;

	if (entry == NULL)
		return srt_fail(SRT_ERR_NOT_FOUND, "there is no configuration variable %.100s",
				name);
	text = srt_config_foreign(entry->name);
	if (text != NULL && !parse_value(entry, text, &parsed))
		return fail_value(entry, text);
	*value = text != NULL ? text : entry->default_value;
	if (is_set != NULL)
		*is_set = text != NULL;
	return SRT_OK;
}

srt_status_t srt_config_check_all(void)
{
	for (size_t i = 0; i < SRT_ARRAY_LEN(table); i++) {
		const char *value;

		SRT_TRY(srt_config_value(table[i].name, &value, NULL));
	}
	return SRT_OK;
}

/* The text in force and its parsed form; a malformed one reads as the default. */
static const char *get_value(const char *name, parsed_t *value)
{
	const srt_config_entry_t *entry = find_entry(name);
	const char *text;

	*value = (parsed_t){ 0 };
	if (entry == NULL) {
		srt_log(SRT_LOG_ERROR, "libshardrt reads a variable that is not in its table: %s",
			name);
		return "";
	}
	text = srt_config_foreign(entry->name);
	if (text != NULL && parse_value(entry, text, value))
		return text;
	parse_value(entry, entry->default_value, value);
	return entry->default_value;
}

const char *srt_config_string(const char *name)
{
	parsed_t value;

	return get_value(name, &value);
}

int64_t srt_config_int(const char *name)
{
	parsed_t value;

	get_value(name, &value);
	return value.integer;
}

double srt_config_seconds(const char *name)
{
	parsed_t value;

	get_value(name, &value);
	return value.real;
}

bool srt_config_bool(const char *name)
{
	return srt_config_int(name) != 0;
}

size_t srt_config_size(const char *name)
{
	return (size_t)srt_config_int(name);
}

/* ---- variables of others ---------------------------------------------------------------- */

bool srt_config_cache_dir(char *path, size_t path_nbytes)
{
	const char *dir = srt_config_string("SHARDRT_CACHE_DIR");
	const char *below = "";
	int n;

	if (!dir[0]) {
		below = "/shardrt";
		dir = getenv("XDG_CACHE_HOME");
		/* The XDG specification: a relative path is ignored. */
		if (dir == NULL || dir[0] != '/') {
			below = "/.cache/shardrt";
			dir = getenv("HOME");
		}
	}
	if (dir == NULL || !dir[0])
		return false;
	n = snprintf(path, path_nbytes, "%s%s", dir, below);
	return n > 0 && (size_t)n < path_nbytes;
}

bool srt_config_is_empty(const char *name)
{
	const char *text = getenv(name);

	return text != NULL && !*text;
}

const char *srt_config_foreign(const char *name)
{
	const char *text = getenv(name);

	return text != NULL && *text ? text : NULL;
}

srt_status_t srt_config_foreign_int(const char *name, int *value)
{
	const char *text = srt_config_foreign(name), *end;
	int64_t v;

	*value = -1;
	if (text == NULL)
		return SRT_OK;
	if (!parse_integer(text, &v, &end) || *end || v < 0 || v > MAX_RANKS)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s=%.100s in the environment: must be a whole number in 0..%d",
				name, text, MAX_RANKS);
	*value = (int)v;
	return SRT_OK;
}

void srt_config_set_default(const char *name, const char *value)
{
	setenv(name, value, srt_config_is_empty(name));
}

/* ---- unknown variables ---------------------------------------------------------------- */

/* The known name with the fewest edits, at most a third of the part after the prefix; more
 * means another variable. */
static const char *find_nearest(const char *name, size_t len)
{
	size_t best = (len - strlen(PREFIX)) / 3 + 1;
	const char *nearest = NULL;

	for (size_t i = 0; i < SRT_ARRAY_LEN(table); i++) {
		size_t d = srt_count_edits(name, len, table[i].name);

		if (d < best) {
			best = d;
			nearest = table[i].name;
		}
	}
	return nearest;
}

size_t srt_config_unknown(void (*report)(const char *name, const char *nearest, void *arg),
			  void *arg)
{
	size_t count = 0;

	for (char **e = environ; e != NULL && *e != NULL; e++) {
		size_t len = strcspn(*e, "=");
		char name[128];

		if (strncmp(*e, PREFIX, strlen(PREFIX)) != 0)
			continue;
		len = len < sizeof name ? len : sizeof name - 1;
		memcpy(name, *e, len);
		name[len] = '\0';
		if (find_entry(name) != NULL)
			continue;
		count++;
		if (report != NULL)
			report(name, find_nearest(name, len), arg);
	}
	return count;
}
