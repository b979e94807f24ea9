/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * list_backends [NAME,NAME...]: one line a backend, "NAME ok DEVICE" or "NAME missing REASON", of
 * all that tests know, or of those named. Run by `make check` for tests/harness/run_test.sh.
 */
#include "device/device.h"
#include "tests/harness/check.h"

#define FAKE_CUDA_PATH "tests/fakes/fake_cuda/.libs/libfake_cuda.so"

/* The sentence in one line, which is all that the table at the suite's end has room for. */
static void print_line(const char *name, const char *state, const char *text)
{
	printf("%s %s ", name, state);
	for (; *text; text++)
		putchar(*text == '\n' ? ' ' : *text);
	putchar('\n');
}

static void list(const char *name)
{
	srt_device_request_t request = { .selector = "", .local_size = 1, .exact = 1 };
	srt_device_info_t info = SRT_DEVICE_INFO_INIT;
	srt_device_t *device;
	bool fake = !strcmp(name, "fakecuda"); /* the backend cuda, see tests/harness/run_test.sh */

	if (fake)
		setenv("SHARDRT_CUDA_DRIVER", FAKE_CUDA_PATH, 1);
	else if (strcmp(name, "cpu"))
		request.selector = srt_config_string("SHARDRT_DEVICE");
	if (srt_device_open(fake ? "cuda" : name, &request, SRT_NUMERICS_EXACT, &device) !=
		    SRT_OK ||
	    srt_device_get_info(device, &info) != SRT_OK) {
		print_line(name, "missing", srt_error_last());
		return;
	}
	print_line(name, "ok", info.name);
	srt_device_close(device);
}

int main(int argc, char **argv)
{
	char names[256] = "cpu,opencl,cuda,late", *rest = names;
	const char *name;

	if (argc > 1 && argv[1][0])
		CHECK_OR_DIE((size_t)snprintf(names, sizeof(names), "%s", argv[1]) < sizeof(names));
	while ((name = strsep(&rest, ",")) != NULL)
		if (name[0])
			list(name);
	return 0;
}
