/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/harness/random.h"

uint64_t random_state = 88172645463325252u;

uint32_t random32(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32_t)(random_state >> 32);
}

float random_float(void)
{
	return (float)((int)(random32() >> 8) - (1 << 23)) * 0x1p-23f;
}
