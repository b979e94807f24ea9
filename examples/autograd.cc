// SPDX-License-Identifier: BSD-3-Clause
//
// A minimal autograd with own tensors, memory and kernels (matmul, add, relu, mse) under the zero3 engine.
//
//     c++ -std=c++17 -O2 autograd.cc $(pkg-config --cflags --libs shardrt) -o autograd
//     ./autograd plain                     own SGD, no engine
//     shardrun -n 2 ./autograd zero3       prints the same losses
//     THROW=step: rank 1 throws in the forward pass of this step, and the job ends with its sentence
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <shardrt/shardrt.hpp>

// ---- the framework ------------------------------------------------------------------------------------------------
struct tensor {
	int64_t rows, cols;
	std::vector<float> own, own_grad;
	float *data = nullptr, *grad = nullptr; // own memory, or a view of the engine's
	bool param = false;
	tensor(int64_t r, int64_t c, bool is_view = false) : rows(r), cols(c)
	{
		if (!is_view)
			own.resize(r * c), own_grad.resize(r * c), data = own.data(), grad = own_grad.data();
	}
	int64_t size() const { return rows * cols; }
};
using var = std::shared_ptr<tensor>;
static std::vector<std::function<void()>> tape;
static var make(int64_t r, int64_t c) { return std::make_shared<tensor>(r, c); }

static var matmul(var x, var w)
{
	var y = make(x->rows, w->cols);
	for (int64_t i = 0; i < x->rows; i++)
		for (int64_t k = 0; k < x->cols; k++)
			for (int64_t j = 0; j < w->cols; j++)
				y->data[i * y->cols + j] += x->data[i * x->cols + k] * w->data[k * w->cols + j];
	tape.push_back([=] {
		for (int64_t i = 0; i < x->rows; i++)
			for (int64_t k = 0; k < x->cols; k++)
				for (int64_t j = 0; j < w->cols; j++) {
					x->grad[i * x->cols + k] += y->grad[i * y->cols + j] * w->data[k * w->cols + j];
					w->grad[k * w->cols + j] += x->data[i * x->cols + k] * y->grad[i * y->cols + j];
				}
	});
	return y;
}
static var add(var x, var b) // b: one row
{
	var y = make(x->rows, x->cols);
	for (int64_t i = 0; i < x->size(); i++)
		y->data[i] = x->data[i] + b->data[i % x->cols];
	tape.push_back([=] {
		for (int64_t i = 0; i < x->size(); i++)
			x->grad[i] += y->grad[i], b->grad[i % x->cols] += y->grad[i];
	});
	return y;
}
static var relu(var x)
{
	var y = make(x->rows, x->cols);
	for (int64_t i = 0; i < x->size(); i++)
		y->data[i] = x->data[i] > 0 ? x->data[i] : 0;
	tape.push_back([=] {
		for (int64_t i = 0; i < x->size(); i++)
			x->grad[i] += x->data[i] > 0 ? y->grad[i] : 0;
	});
	return y;
}
static float mse(var x, var t)
{
	float loss = 0;
	for (int64_t i = 0; i < x->size(); i++)
		loss += (x->data[i] - t->data[i]) * (x->data[i] - t->data[i]) / x->size();
	tape.push_back([=] {
		for (int64_t i = 0; i < x->size(); i++)
			x->grad[i] += 2 * (x->data[i] - t->data[i]) / x->size();
	});
	return loss;
}
static void backward()
{
	for (auto f = tape.rbegin(); f != tape.rend(); ++f)
		(*f)();
	tape.clear();
}

// ---- the glue to libshardrt ---------------------------------------------------------------------------------------
struct unit {
	srt_unit_t *u = nullptr;
	srt_stream_t *stream = nullptr;
	std::vector<std::pair<srt_param_t *, var>> params;
	std::optional<shardrt::backward_pass> backward;

	var param(const std::string &name, const int64_t (&shape)[2])
	{
		srt_param_t *p = shardrt::get(srt_param_create, u, name.c_str(), SRT_F32, 2, shape, nullptr);
		return params.emplace_back(p, std::make_shared<tensor>(shape[0], shape[1], true)).second;
	}
	template <class F> var run(F module) // its forward pass; the tape gets its backward pass, which it runs in reverse
	{
		shardrt::forward_pass forward(u, stream);
		for (auto &[p, v] : params)
			v->data = shardrt::host<float>(shardrt::get(srt_param_data, p));
		shardrt::check(srt_stream_sync(stream)); // the host computes: the gather must be complete
		tape.push_back([this] {
			for (auto &[p, v] : params)
				shardrt::check(srt_param_grad_ready(p));
			backward->end();
		});
		var y = module();
		forward.end();
		tape.push_back([this] {
			backward.emplace(u, stream);
			for (auto &[p, v] : params)
				v->grad = shardrt::host<float>(shardrt::grad(p).view); // to be added to: clear_grads
			shardrt::check(srt_stream_sync(stream));
		});
		return y;
	}
};

// ---- a model of three layers --------------------------------------------------------------------------------------
enum { IN = 8, WIDTH = 32, OUT = 4, SAMPLES = 24, STEPS = 40 };
static const int64_t sizes[] = { IN, WIDTH, WIDTH, OUT };
static float noise(uint32_t i) { return (float)((i * 2654435761u >> 8) % 2001) / 1000 - 1; }

struct model {
	shardrt::context context; // the order matters: destroyed from the last
	shardrt::stream stream;
	shardrt::engine engine;
	unit root, layer[3];
	var w[3], b[3];
	int rank = 0, nranks = 1;

	explicit model(bool sharded)
	{
		if (sharded) {
			srt_engine_options_t options = SRT_ENGINE_OPTIONS_INIT; // zero3
			srt_optim_options_t sgd = SRT_OPTIM_SGD_INIT;
			sgd.lr = 0.05f;
			options.optim = &sgd;
			options.clear_grads = 1; // the autograd can only add
			context = shardrt::make(srt_context_create, nullptr);
			stream = shardrt::make(srt_stream_create, srt_context_device(context.get()), 0, "compute");
			engine = shardrt::make(srt_engine_create, context.get(), &options);
			root.u = shardrt::get(srt_unit_create, engine.get(), nullptr, "model", nullptr);
			root.stream = stream.get();
			rank = srt_context_rank(context.get()), nranks = srt_context_world_size(context.get());
		}
		for (int i = 0; i < 3; i++) {
			std::string name = "layer" + std::to_string(i);
			if (sharded) {
				layer[i].u = shardrt::get(srt_unit_create, engine.get(), root.u, name.c_str(), nullptr);
				layer[i].stream = stream.get();
				w[i] = layer[i].param(name + ".weight", { sizes[i], sizes[i + 1] });
				b[i] = layer[i].param(name + ".bias", { 1, sizes[i + 1] });
			} else
				w[i] = make(sizes[i], sizes[i + 1]), b[i] = make(1, sizes[i + 1]);
		}
		if (sharded)
			shardrt::check(srt_engine_build(engine.get()));
		for (int i = 0; i < 3; i++) {
			std::vector<float> v(w[i]->size());
			for (size_t j = 0; j < v.size(); j++)
				v[j] = 0.3f * noise(j + 1000 * i);
			if (sharded)
				shardrt::check(srt_param_set(layer[i].params[0].first, SRT_PARAM_VALUE, v.data(), stream.get()));
			else
				w[i]->own = v, w[i]->data = w[i]->own.data();
		}
	}
	var forward(int n, var x)
	{
		for (int i = 0; i < 3; i++) {
			auto module = [&] {
				if (std::getenv("THROW") && std::atoi(std::getenv("THROW")) == n && rank == 1)
					throw std::logic_error("rank 1 has had enough");
				var y = add(matmul(x, w[i]), b[i]);
				return i < 2 ? relu(y) : y;
			};
			x = engine ? layer[i].run(module) : module();
		}
		return x;
	}
	float step(int n)
	{
		const int64_t rows = SAMPLES / nranks;
		var x = make(rows, IN), t = make(rows, OUT), y;
		for (int64_t i = 0; i < x->size(); i++)
			x->data[i] = noise(n * 7919 + rank * rows * IN + i);
		for (int64_t i = 0; i < t->size(); i++)
			t->data[i] = x->data[i / OUT * IN + i % OUT] * x->data[i / OUT * IN + i % OUT + 1];
		y = engine ? root.run([&] { return forward(n, x); }) : forward(n, x);
		float loss = mse(y, t);
		backward();
		if (engine)
			shardrt::check(srt_engine_step(engine.get(), stream.get()));
		else
			for (int i = 0; i < 3; i++)
				for (var p : { w[i], b[i] })
					for (int64_t j = 0; j < p->size(); j++)
						p->data[j] -= 0.05f * p->grad[j], p->grad[j] = 0;
		return loss;
	}
};

static void train(model &m)
{
	for (int n = 0; n < STEPS; n++) {
		float loss = m.step(n), all[64];
		if (m.engine) {
			shardrt::check(srt_comm_oob_allgather(srt_context_world(m.context.get()), &loss, sizeof(loss), all));
			loss = 0;
			for (int r = 0; r < m.nranks; r++)
				loss += all[r] / m.nranks;
		}
		if (m.rank == 0 && n % 8 == 7)
			std::printf("%d %.6f\n", n, (double)loss);
	}
	if (m.engine)
		shardrt::check(srt_stream_sync(m.stream.get())); // a rank that leaves earlier would abort the last step
}

int main(int argc, char **argv)
{
	try {
		model m(argc > 1 && !std::strcmp(argv[1], "zero3"));
		if (m.engine)
			shardrt::abort_on_throw(srt_context_world(m.context.get()), [&] { train(m); });
		else
			train(m);
	} catch (const std::exception &e) {
		std::fprintf(stderr, "%s\n", e.what());
		return 1;
	}
}
