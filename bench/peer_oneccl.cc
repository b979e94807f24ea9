/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The all-reduce of bench_coll.c, by oneCCL: compiled and run with mpiexec.hydra by
 * peer_collectives.py, which sets RANK and WORLD_SIZE.
 *
 *     peer_oneccl FILE BYTES ...
 *
 * Rank 0 writes its address to the file. Prints a line for each size: name, bytes, microseconds,
 * "ok".
 */
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <unistd.h>
#include <vector>

#include <oneapi/ccl.hpp>

#include "bench/coll_rules.h"

/* The profiling hooks of the static library, which is built for Intel's linker: none. */
#define NO_HOOK(name) extern "C" void *__itt_##name##_ptr__3_0 = nullptr;
NO_HOOK(domain_create)
NO_HOOK(event_create)
NO_HOOK(event_end)
NO_HOOK(event_start)
NO_HOOK(metadata_add)
NO_HOOK(string_handle_create)
NO_HOOK(task_begin)
NO_HOOK(task_end)
NO_HOOK(thread_set_name)

static ccl::shared_ptr_class<ccl::kvs> meet(const std::string &path, int rank)
{
	ccl::kvs::address_type address;

	if (rank == 0) {
		auto kvs = ccl::create_main_kvs();

		address = kvs->get_address();
		std::ofstream(path + ".part").write(address.data(), address.size());
		if (rename((path + ".part").c_str(), path.c_str()) != 0)
			exit(1);
		return kvs;
	}
	while (access(path.c_str(), R_OK) != 0)
		usleep(1000);
	std::ifstream(path).read(address.data(), address.size());
	return ccl::create_kvs(address);
}

static double time_all_reduce(const ccl::communicator &comm, std::vector<float> &full)
{
	const int starts = starts_of(full.size() * sizeof(float));
	double best = 1e9;

	for (int k = 0; k < REPEATS; k++) {
		double start, mine, slowest;

		ccl::barrier(comm).wait();
		start = now_s();
		for (int i = 0; i < starts; i++)
			ccl::allreduce(full.data(), full.data(), full.size(), ccl::reduction::sum,
				       comm)
				.wait();
		mine = (now_s() - start) / starts;
		ccl::allreduce(&mine, &slowest, 1, ccl::reduction::max, comm).wait();
		best = std::min(best, slowest);
	}
	return best;
}

int main(int argc, char **argv)
{
	const int rank = atoi(getenv("RANK")), size = atoi(getenv("WORLD_SIZE"));

	ccl::init();
	const auto comm = ccl::create_communicator(size, rank, meet(argv[1], rank));
	for (int i = 2; i < argc; i++) {
		const size_t each = strtoull(argv[i], nullptr, 10) / sizeof(float) / (size_t)size;
		const result_t expected = { "all-reduce", 1, size, each, 0, (size_t)size * each };
		std::vector<float> full(expected.nelem);
		const double t = time_all_reduce(comm, full);

		for (size_t e = 0; e < full.size(); e++)
			full[e] = value_of(rank, e);
		ccl::allreduce(full.data(), full.data(), full.size(), ccl::reduction::sum, comm)
			.wait();
		if (!is_result(&expected, rank, full.data()))
			return 1;
		ccl::barrier(comm).wait();
		if (rank == 0)
			printf("all-reduce %zu %.2f ok\n", full.size() * sizeof(float), t * 1e6);
	}
	return 0;
}
