/* SPDX-License-Identifier: BSD-3-Clause */
/* Loads UCX: see library.h. */
#include "collectives/transports/ucx/library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "collectives/comm.h"

#define LIBRARY "libucp.so.0"
/* Shared memory of earlier versions cannot go on after a peer's death. */
#define NEEDED_MINOR 12u

static const struct function {
	const char *name;
	size_t offset; /* of the pointer in the table */
} functions[] = {
#define ROW(name) { #name, offsetof(srt_ucx_library_t, name) },
	SRT_UCX_FUNCTIONS(ROW)
#undef ROW
};

/* UCX installs handlers for these when it is loaded. They are the program's. */
static const int error_signals[] = { SIGILL, SIGSEGV, SIGBUS, SIGFPE };

_Thread_local int srt_ucx_nlocks;

/* UCX prints what it logs. The peers' deaths are among that: it is for the debug log. */
static ucs_log_func_rc_t handle_log(const char *file, unsigned line, const char *function,
				    ucs_log_level_t level,
				    const ucs_log_component_config_t *component,
				    const char *message, va_list args)
{
	char text[256];

	(void)file;
	(void)line;
	(void)function;
	(void)component;
	if (srt_ucx_nlocks == 0) /* another user of UCX in this process */
		return UCS_LOG_FUNC_RC_CONTINUE;
	if (level > UCS_LOG_LEVEL_WARN)
		return UCS_LOG_FUNC_RC_CONTINUE;
	vsnprintf(text, sizeof(text), message, args);
	srt_log(SRT_LOG_DEBUG, "UCX: %s", text);
	return UCS_LOG_FUNC_RC_STOP;
}

static void *open_quietly(void)
{
	struct sigaction old[SRT_ARRAY_LEN(error_signals)];
	void *handle;

	for (size_t i = 0; i < SRT_ARRAY_LEN(error_signals); i++)
		sigaction(error_signals[i], NULL, &old[i]);
	/* UCX's threads may outlive its users. */
	handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	for (size_t i = 0; i < SRT_ARRAY_LEN(error_signals); i++) {
		if (srt_config_foreign("UCX_HANDLE_ERRORS") == NULL)
			sigaction(error_signals[i], &old[i], NULL);
	}
	return handle;
}

/* Called with the lock held. */
static srt_status_t load(srt_ucx_library_t *table)
{
	void *handle = open_quietly();

	if (handle == NULL)
		return srt_fail(SRT_ERR_NOT_FOUND,
				"there is no UCX: %s; install UCX (Debian: libucx0)", dlerror());
	for (size_t i = 0; i < SRT_ARRAY_LEN(functions); i++) {
		/* RTLD_NODELETE keeps what the table refers to. */
		void *address = dlsym(handle, functions[i].name);

		if (address == NULL)
			return srt_fail(SRT_ERR_UNSUPPORTED,
					LIBRARY " is too old or no UCX: it has no function %s; "
						"install UCX 1.%u or newer",
					functions[i].name, NEEDED_MINOR);
		/* ISO C has no cast from an object to a function pointer; POSIX allows it. */
		memcpy((char *)table + functions[i].offset, &address, sizeof(address));
	}
	table->ucp_get_version(&table->major, &table->minor, &table->release);
	if (table->major != 1 || table->minor < NEEDED_MINOR)
		return srt_fail(SRT_ERR_UNSUPPORTED,
				LIBRARY " is UCX %u.%u.%u; 1.%u or newer is required, of major "
					"version 1",
				table->major, table->minor, table->release, NEEDED_MINOR);
	table->ucs_log_push_handler(handle_log);
	return SRT_OK;
}

/* UCX, once in a process. */
static struct {
	pthread_mutex_t lock;
	bool loaded;
	srt_ucx_library_t table;
} ucx_library = { .lock = PTHREAD_MUTEX_INITIALIZER };

srt_status_t srt_ucx_library(const srt_ucx_library_t **out)
{
	srt_status_t status = SRT_OK;

	pthread_mutex_lock(&ucx_library.lock);
	if (!ucx_library.loaded)
		status = load(&ucx_library.table);
	ucx_library.loaded = status == SRT_OK;
	pthread_mutex_unlock(&ucx_library.lock);
	if (status == SRT_OK)
		*out = &ucx_library.table;
	return status;
}

srt_status_t srt_ucx_probe(void)
{
	const srt_ucx_library_t *library;

	return srt_ucx_library(&library);
}
