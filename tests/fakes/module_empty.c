/* SPDX-License-Identifier: BSD-3-Clause */
/* A shared object that is no backend, for tests/device/test_module.c. */
int srt_test_module_empty(void);

int srt_test_module_empty(void)
{
	return 0;
}
