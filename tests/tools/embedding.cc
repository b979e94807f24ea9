// SPDX-License-Identifier: BSD-3-Clause
//
// The C++ of docs/embedding.md, built and run on two ranks by tests/tools/test_install.sh.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <stdexcept>

#include <shardrt/shardrt.h>

struct destroy {
	void operator()(srt_context_t *context) const { srt_context_destroy(context); }
	void operator()(srt_stream_t *stream) const { srt_stream_destroy(stream); }
	void operator()(srt_engine_t *engine) const { srt_engine_destroy(engine); }
};
template <class T> using handle = std::unique_ptr<T, destroy>;

static void check(srt_status_t status)
{
	if (status != SRT_OK)
		throw std::runtime_error(srt_last_error());
}

class training {
	handle<srt_context_t> context; // first, so destroyed last
	handle<srt_stream_t> stream;
	handle<srt_engine_t> engine; // last, so destroyed first

public:
	explicit training(float lr)
	{
		srt_engine_options_t options = SRT_ENGINE_OPTIONS_INIT;
		srt_optim_options_t optim = SRT_OPTIM_OPTIONS_INIT;
		srt_context_t *c;
		srt_stream_t *s;
		srt_engine_t *e;

		check(srt_context_create(nullptr, &c));
		context.reset(c);
		check(srt_stream_create(srt_context_device(c), 0, "compute", &s));
		stream.reset(s);
		optim.lr = lr;
		options.optim = &optim;
		check(srt_engine_create(c, &options, &e));
		engine.reset(e);
	}
	~training()
	{
		if (stream)
			srt_stream_sync(stream.get()); // a failure was reported before
	}

	double norm()
	{
		const int64_t shape[] = { 8 };
		srt_step_state_t state;
		srt_unit_t *unit;
		srt_param_t *param;
		srt_view_t view;
		int accumulate;

		check(srt_unit_create(engine.get(), nullptr, "model", nullptr, &unit));
		check(srt_param_create(unit, "w", SRT_F32, 1, shape, nullptr, &param));
		check(srt_engine_build(engine.get()));
		check(srt_unit_forward_begin(unit, stream.get()));
		check(srt_unit_forward_end(unit, stream.get()));
		check(srt_unit_backward_begin(unit, stream.get()));
		check(srt_param_grad(param, &view, &accumulate));
		check(srt_op_fill(stream.get(), view, 2.0f, 8));
		check(srt_param_grad_ready(param));
		check(srt_unit_backward_end(unit, stream.get()));
		check(srt_engine_finish_backward(engine.get(), stream.get()));
		check(srt_engine_clip(engine.get(), 1, 0.0f, stream.get()));
		check(srt_engine_step(engine.get(), stream.get()));
		check(srt_engine_state(engine.get(), stream.get(), &state));
		return state.grad_norm;
	}
};

int main()
{
	try {
		training refused(-1.0f);
		return 1;
	} catch (const std::runtime_error &error) {
		std::printf("%s\n", error.what());
	}
	std::printf("norm %g\n", training(0.1f).norm());
	return 0;
}
