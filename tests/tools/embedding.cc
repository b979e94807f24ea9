// SPDX-License-Identifier: BSD-3-Clause
//
// The C++ of docs/embedding.md, built and run on two ranks by tests/tools/test_install.sh.
#include <cstdint>
#include <cstdio>

#include <shardrt/ops.h>
#include <shardrt/shardrt.hpp>

using shardrt::check;

class training {
	shardrt::context context; // first, so destroyed last
	shardrt::stream stream;
	shardrt::engine engine; // last, so destroyed first

      public:
	explicit training(float lr)
	{
		srt_engine_options_t options = SRT_ENGINE_OPTIONS_INIT;
		srt_optim_options_t optim = SRT_OPTIM_OPTIONS_INIT;

		context = shardrt::make(srt_context_create, nullptr);
		stream = shardrt::make(srt_stream_create, srt_context_device(context.get()), 0, "compute");
		optim.lr = lr;
		options.optim = &optim;
		engine = shardrt::make(srt_engine_create, context.get(), &options);
	}
	~training()
	{
		if (stream)
			(void)srt_stream_sync(stream.get()); // a failure was reported before
	}

	double norm()
	{
		const int64_t shape[] = { 8 };
		srt_step_info_t state = SRT_STEP_INFO_INIT;
		srt_unit_t *unit = shardrt::get(srt_unit_create, engine.get(), nullptr, "model", nullptr);
		srt_param_t *param = shardrt::get(srt_param_create, unit, "w", SRT_F32, 1, shape, nullptr);

		check(srt_engine_build(engine.get()));
		shardrt::forward_pass forward(unit, stream.get());
		forward.end();
		shardrt::backward_pass backward(unit, stream.get());
		srt_view_t view = shardrt::grad(param).view;
		check(srt_op_fill(view, 2.0f, 8, stream.get()));
		check(srt_param_grad_ready(param));
		backward.end();
		check(srt_engine_finish_backward(engine.get(), stream.get()));
		check(srt_engine_clip(engine.get(), 1, 0.0f, stream.get()));
		check(srt_engine_step(engine.get(), stream.get()));
		check(srt_engine_get_step_info(engine.get(), &state, stream.get()));
		return state.grad_norm;
	}
};

int main()
{
	try {
		training refused(-1.0f);
		return 1;
	} catch (const shardrt::error &error) {
		if (error.status() != SRT_ERR_INVALID_ARGUMENT)
			return 1;
		std::printf("%s\n", error.what());
	}
	std::printf("norm %g\n", training(0.1f).norm());
	return 0;
}
