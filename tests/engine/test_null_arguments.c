/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NULL for each pointer argument of each public function: SRT_ERR_INVALID_ARGUMENT with a sentence
 * that names the function and the argument, or the answer that the header documents. A size of 0 in
 * each struct that begins with its size: the same, with a sentence that names the struct. The calls
 * are made from the headers by null_calls.awk.
 *
 * Reliability: NULL for any pointer of any public function | 59 crashes | refused by name, or
 * documented
 */
#include <setjmp.h>
#include <signal.h>

#include <shardrt/ops.h>
#include <shardrt/shardrt.h>

#include "tests/harness/check.h"
#include "tests/harness/options.h"

static struct {
	srt_context_t *context;
	srt_device_t *device;
	srt_buffer_t *buffer;
	srt_stream_t *stream;
	srt_event_t *event;
	srt_comm_t *comm;
	srt_coll_t *coll;
	srt_engine_t *engine;
	srt_unit_t *unit;
	srt_param_t *param;
	srt_unit_buffer_t *unit_buffer;
	srt_module_t *module;
	srt_optim_t *optim;
	srt_scaler_t *scaler;
	srt_sharded_tensor_t *sharded_tensor, *matrix;
	srt_sharded_layer_t *sharded_layer;
} objects;

static uint64_t storage[512];
static void *const memory = storage; /* of options, data and results; zero before each call */

static sigjmp_buf before_call;
static int nsizes; /* calls with a size of 0 */

static void leave_crash(int signal)
{
	siglongjmp(before_call, signal);
}

/* Numbers that are not 0. */
static const struct {
	const char *function, *argument;
	double number;
} numbers[] = {
	{ "srt_context_rank", "context", -1 }, { "srt_context_local_rank", "context", -1 },
	{ "srt_comm_rank", "comm", -1 },       { "srt_mesh_coordinate", "mesh", -1 },
	{ "srt_optim_find", "name", 1 }, /* the number of parameters */
};

static void check_null_status(const char *function, const char *argument, srt_status_t status)
{
	char words[128];

	snprintf(words, sizeof(words), "%s: %s is NULL", function, argument);
	CHECK_MSG(status == SRT_ERR_INVALID_ARGUMENT && strstr(srt_error_last(), words) != NULL,
		  "%s is %s: %s", words, srt_status_string(status), srt_error_last());
}

static void check_no_size(const char *function, const char *type, srt_status_t status)
{
	char words[128];

	nsizes++;
	snprintf(words, sizeof(words), "%s.size is 0", type);
	CHECK_MSG(status == SRT_ERR_INVALID_ARGUMENT && strstr(srt_error_last(), words) != NULL,
		  "%s, %s: %s: %s", function, words, srt_status_string(status), srt_error_last());
}

static void check_null_number(const char *function, const char *argument, double number)
{
	double expected = 0;

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		if (strcmp(numbers[i].function, function) == 0 &&
		    strcmp(numbers[i].argument, argument) == 0)
			expected = numbers[i].number;
	}
	CHECK_MSG(number == expected, "%s: %s is NULL: %g, not %g", function, argument, number,
		  expected);
}

#define CALL(function, argument, check)                                                            \
	do {                                                                                       \
		memset(memory, 0, sizeof(storage));                                                \
		if (sigsetjmp(before_call, 1) == 0)                                                \
			check;                                                                     \
		else                                                                               \
			CHECK_REPORT("%s: %s is NULL: a crash", #function, #argument);             \
	} while (0)
#define NO_SIZE(function, type, call) CALL(function, type, check_no_size(#function, #type, call))
#define NULL_STATUS(function, argument, call)                                                      \
	CALL(function, argument, check_null_status(#function, #argument, call))
#define NULL_NUMBER(function, argument, call)                                                      \
	CALL(function, argument, check_null_number(#function, #argument, (double)(call)))
#define NULL_POINTER(function, argument, call) CALL(function, argument, CHECK((call) == NULL))
#define NULL_TEXT(function, argument, call) CALL(function, argument, CHECK(strcmp((call), "") == 0))
#define NULL_VIEW(function, argument, call) CALL(function, argument, CHECK((call).buffer == NULL))
#define NULL_VOID(function, argument, call) CALL(function, argument, call)

static void call_all(void)
{
#include "tests/engine/null_calls.h"
}

static void create_objects(void)
{
	const srt_coll_desc_t barrier = { .size = sizeof(barrier),
					  .kind = SRT_COLL_BARRIER,
					  .name = "barrier" };
	const srt_engine_options_t options = ENGINE_SGD(SRT_STRATEGY_DDP, 0.1f);
	const srt_optim_options_t list = SRT_OPTIM_SGD_INIT;
	const srt_shard_location_t location = { 0 };
	const srt_sharding_t chunk = { .size = sizeof(chunk),
				       .locations = &location,
				       .nlocations = 1 };
	const int64_t shape[] = { 4, 2 };
	srt_optim_param_t tensor = SRT_OPTIM_PARAM_INIT;

	tensor.name = "w";
	tensor.nelem = 4;
	CHECK_OK_OR_DIE(srt_context_create(NULL, &objects.context));
	objects.device = srt_context_device(objects.context);
	objects.comm = srt_context_world(objects.context);
	CHECK_OK_OR_DIE(srt_stream_create(objects.device, 0, "test", &objects.stream));
	CHECK_OK_OR_DIE(
		srt_buffer_create(objects.device, SRT_MEM_DEVICE, 64, "test", &objects.buffer));
	CHECK_OK_OR_DIE(srt_event_create(objects.device, &objects.event));
	CHECK_OK_OR_DIE(srt_coll_create(objects.comm, &barrier, &objects.coll));
	CHECK_OK_OR_DIE(srt_engine_create(objects.context, &options, &objects.engine));
	CHECK_OK_OR_DIE(srt_unit_create(objects.engine, NULL, "root", NULL, &objects.unit));
	CHECK_OK_OR_DIE(
		srt_param_create(objects.unit, "w", SRT_F32, 1, shape, NULL, &objects.param));
	CHECK_OK_OR_DIE(srt_unit_buffer_create(objects.unit, "mean", SRT_F32, 1, shape,
					       &objects.unit_buffer));
	CHECK_OK_OR_DIE(srt_engine_build(objects.engine));
	CHECK_OK_OR_DIE(srt_module_create(NULL, NULL, "Model", &objects.module));
	tensor.value = srt_view(objects.buffer, 0, SRT_F32);
	tensor.grad = srt_view(objects.buffer, 32, SRT_F32);
	CHECK_OK_OR_DIE(srt_optim_create(objects.device, &list, 1, &tensor, 1, &objects.optim,
					 objects.stream));
	CHECK_OK_OR_DIE(srt_scaler_create(objects.context, NULL, &objects.scaler));
	CHECK_OK_OR_DIE(srt_sharded_tensor_create(objects.context, NULL, "s", SRT_F32, 1, shape,
						  &chunk, &objects.sharded_tensor));
	CHECK_OK_OR_DIE(srt_sharded_tensor_create(objects.context, NULL, "m", SRT_F32, 2, shape,
						  &chunk, &objects.matrix));
	CHECK_OK_OR_DIE(
		srt_sharded_layer_create_linear(objects.matrix, NULL, 0, &objects.sharded_layer));
}

static void destroy_objects(void)
{
	CHECK_OK(srt_stream_sync(objects.stream));
	srt_module_destroy(objects.module);
	srt_sharded_layer_destroy(objects.sharded_layer);
	srt_sharded_tensor_destroy(objects.matrix);
	srt_sharded_tensor_destroy(objects.sharded_tensor);
	srt_scaler_destroy(objects.scaler);
	srt_optim_destroy(objects.optim);
	srt_engine_destroy(objects.engine);
	srt_coll_destroy(objects.coll);
	srt_event_destroy(objects.event);
	srt_buffer_destroy(objects.buffer);
	srt_stream_destroy(objects.stream);
	srt_context_destroy(objects.context);
}

int main(void)
{
	struct sigaction crash = { .sa_handler = leave_crash, .sa_flags = SA_NODEFER };

	create_objects();
	sigaction(SIGSEGV, &crash, NULL);
	call_all();
	CHECK_OR_DIE(check_count > 300 && nsizes > 20); /* the headers were found */
	destroy_objects();
	return check_done();
}
