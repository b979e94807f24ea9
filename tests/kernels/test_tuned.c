/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A device's own matrix product and attention, as srt_op_matmul() and srt_op_attention*() choose
 * them, against the portable kernels on the CPU, bit for bit (NaN as a class): ragged sizes, depths
 * around the blocks of k, distances between rows, batches, all epilogues, masks, 16-bit types, hard
 * values also at masked positions. Whole buffers are compared, so the gaps of rows and the guards
 * around the tensors must survive. On OpenCL devices every form that the device can have
 * (backends/opencl/tuned.h). The cases are in tuned_matmul.c and tuned_attention.c; `tiny` runs a
 * few groups of each kernel, for a simulator of devices (test_oclgrind.sh).
 */
#include "tests/kernels/tuned_tensor.h"

static bool is_tiny;

static void test_form(const char *name, bool all)
{
	tt_form = name;
	tt_device = test_device(2, "inline");
	tt_stream = test_stream(tt_device, "test");
	if (is_tiny) {
		tt_test_matmul_tiny();
		tt_test_attention_tiny();
	} else {
		tt_test_matmul(all);
		tt_test_attention(all);
	}
	srt_stream_destroy(tt_stream);
	srt_device_close(tt_device);
}

/* On the others portable kernels are compared with themselves, in the few cases of every form. */
static bool has_tuned_kernels(void)
{
	const char *tuned = getenv("SHARDRT_CUDA_TUNED");

	return strcmp(test_backend(), "late") != 0 &&
	       (tuned == NULL || strcmp(tuned, "portable") != 0);
}

int main(int argc, char **argv)
{
	/* The form that the lanes' own suits best; portable attention with lanes as a loop is what
	 * the other tests have. */
	static const char *const of_loop[] = { "vector4", "vector8", "vector16", NULL };
	static const char *const of_items[] = { "portable", "tiled8", "tiled", NULL };
	const char *lanes = getenv("SHARDRT_OPENCL_LANES");
	const char *const *forms = lanes != NULL && !strcmp(lanes, "items") ? of_items : of_loop;

	is_tiny = argc > 1 && !strcmp(argv[1], "tiny");
	if (strcmp(test_backend(), "opencl") != 0) {
		test_form(test_backend(), has_tuned_kernels() || check_is_long());
		return check_done();
	}
	for (int i = 0; forms[i] != NULL; i++) {
		setenv("SHARDRT_OPENCL_TUNED", forms[i], 1);
		test_form(forms[i], strcmp(forms[i], "vector8") == 0);
	}
	return check_done();
}
