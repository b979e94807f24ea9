// SPDX-License-Identifier: BSD-3-Clause
//
// The C interface for C++17: handles that destroy their objects, exceptions instead of statuses,
// guards of a unit's passes. Nothing else has a name in C++: programs call the functions of
// <shardrt/shardrt.h>, alone or by check(), get() and make().
//
//     shardrt::context context = shardrt::make(srt_context_create, nullptr);
//     shardrt::stream stream = shardrt::make(srt_stream_create, srt_context_device(context.get()),
//     0, "compute"); shardrt::abort_on_throw(srt_context_world(context.get()), [&] {
//             shardrt::forward_pass pass(unit, stream.get());
//             srt_view_t values = shardrt::get(srt_param_data, param);
//             ...
//             pass.end();
//             shardrt::check(srt_stream_sync(stream.get()));
//     });
//
// Declare handles in the order of creation: the context first, engines last (docs/embedding.md,
// "C++"). Threads and ownership are those of the C functions.
#ifndef SHARDRT_SHARDRT_HPP
#define SHARDRT_SHARDRT_HPP

#include <cstddef>
#include <exception>
#include <memory>
#include <stdexcept>
#include <tuple>
#include <type_traits>
#include <utility>

#include <shardrt/shardrt.h>

namespace shardrt
{

/// A call of the library that has failed. what() is the sentence of srt_error_last().
class error : public std::runtime_error
{
      public:
	explicit error(srt_status_t status, const char *sentence = srt_error_last())
	    : std::runtime_error(sentence), status_(status)
	{
	}
	/// What kind of failure it is; not SRT_OK.
	[[nodiscard]] srt_status_t status() const noexcept
	{
		return status_;
	}

      private:
	srt_status_t status_;
};

/// Throws an error unless status, the result of the calling thread's last call, is SRT_OK.
inline void check(srt_status_t status)
{
	if (status != SRT_OK)
		throw error(status);
}

/// Destroys an object of the library; the deleter of every handle.
struct destroy {
	void operator()(srt_buffer_t *buffer) const noexcept
	{
		srt_buffer_destroy(buffer);
	}
	void operator()(srt_coll_t *coll) const noexcept
	{
		srt_coll_destroy(coll);
	}
	/// Of srt_comm_create_group() and srt_comm_split(): a context owns its world.
	void operator()(srt_comm_t *comm) const noexcept
	{
		srt_comm_destroy(comm);
	}
	void operator()(srt_context_t *context) const noexcept
	{
		srt_context_destroy(context);
	}
	void operator()(srt_engine_t *engine) const noexcept
	{
		srt_engine_destroy(engine);
	}
	void operator()(srt_event_t *event) const noexcept
	{
		srt_event_destroy(event);
	}
	void operator()(srt_file_t *file) const noexcept
	{
		srt_file_close(file);
	}
	void operator()(srt_file_writer_t *writer) const noexcept
	{
		srt_file_writer_destroy(writer);
	}
	void operator()(srt_mesh_t *mesh) const noexcept
	{
		srt_mesh_destroy(mesh);
	}
	void operator()(srt_module_t *root) const noexcept
	{
		srt_module_destroy(root);
	}
	void operator()(srt_optim_t *optim) const noexcept
	{
		srt_optim_destroy(optim);
	}
	void operator()(srt_scaler_t *scaler) const noexcept
	{
		srt_scaler_destroy(scaler);
	}
	void operator()(srt_sharded_layer_t *layer) const noexcept
	{
		srt_sharded_layer_destroy(layer);
	}
	void operator()(srt_sharded_tensor_t *tensor) const noexcept
	{
		srt_sharded_tensor_destroy(tensor);
	}
	void operator()(srt_stream_t *stream) const noexcept
	{
		srt_stream_destroy(stream);
	}
};

/// Owns an object of the library.
template <class T> using handle = std::unique_ptr<T, destroy>;

using buffer = handle<srt_buffer_t>;
using coll = handle<srt_coll_t>;
using comm = handle<srt_comm_t>;
using context = handle<srt_context_t>;
using engine = handle<srt_engine_t>;
using event = handle<srt_event_t>;
using file = handle<srt_file_t>;
using file_writer = handle<srt_file_writer_t>;
using mesh = handle<srt_mesh_t>;
/// The root of a module tree.
using module_tree = handle<srt_module_t>;
using optim = handle<srt_optim_t>;
using scaler = handle<srt_scaler_t>;
using sharded_layer = handle<srt_sharded_layer_t>;
using sharded_tensor = handle<srt_sharded_tensor_t>;
using stream = handle<srt_stream_t>;

/// Whether T begins with its size, which a caller sets.
template <class T, class = void> struct has_size : std::false_type {
};
template <class T>
struct has_size<T, std::enable_if_t<std::is_same_v<decltype(T::size), std::size_t>>>
    : std::true_type {
};

/// Calls a function with a place for its result, at index sizeof...(I): before the stream if it has one, else last.
template <class F, class R, class Given, std::size_t... I>
srt_status_t call(F function, R *result, Given &&given, std::index_sequence<I...>)
{
	if constexpr (std::tuple_size_v < std::decay_t < Given >>> sizeof...(I))
		return function(std::get<I>(std::forward<Given>(given))..., result,
				std::get<sizeof...(I)>(std::forward<Given>(given)));
	else
		return function(std::get<I>(std::forward<Given>(given))..., result);
}

/// Calls a function that stores one result, in its last parameter or in the one before the stream, and returns the
/// result; throws an error if the call fails. The other arguments are given in their order. For what other objects own
/// (units, parameters) and for values; the size of a struct is set:
///     srt_unit_t *root = shardrt::get(srt_unit_create, engine.get(), nullptr, "model", nullptr);
template <class... Params, class... Args>
[[nodiscard]] auto get(srt_status_t (*function)(Params...), Args &&...args)
{
	using types = std::tuple<Params...>;
	constexpr std::size_t last = sizeof...(Params) - 1;
	constexpr bool streams = std::is_same_v<std::tuple_element_t<last, types>, srt_stream_t *>;
	constexpr std::size_t at = streams ? last - 1 : last;
	std::remove_pointer_t<std::tuple_element_t<at, types>> result{};

	if constexpr (has_size<decltype(result)>::value)
		result.size = sizeof(result);
	check(call(function, &result, std::forward_as_tuple(std::forward<Args>(args)...),
		   std::make_index_sequence<at>()));
	return result;
}

/// As get(), for a function that makes an object, which the handle that is returned owns.
template <class... Params, class... Args>
[[nodiscard]] auto make(srt_status_t (*create)(Params...), Args &&...args)
{
	auto *object = get(create, std::forward<Args>(args)...);

	return handle<std::remove_pointer_t<decltype(object)>>(object);
}

/// What srt_param_grad() stores.
struct gradient {
	srt_view_t view;
	int accumulate;
};

/// Where the gradient of a parameter is stored or added; throws an error if srt_param_grad() fails.
[[nodiscard]] inline gradient grad(srt_param_t *param)
{
	gradient result{};

	check(srt_param_grad(param, &result.view, &result.accumulate));
	return result;
}

/// The host address of a view, as srt_view_host(); T is the type of its elements.
template <class T> [[nodiscard]] T *host(srt_view_t view)
{
	return static_cast<T *>(srt_view_host(view));
}

/// Calls function() and returns its result. An exception that leaves it first aborts the communicator with the
/// exception's sentence: no rank waits any longer, and the error of each other rank says why. Catch inside of function
/// what all ranks go on from in the same way.
template <class F> decltype(auto) abort_on_throw(srt_comm_t *comm, F &&function)
{
	try {
		return std::forward<F>(function)();
	} catch (const std::exception &exception) {
		srt_comm_abort(comm, exception.what());
		throw;
	} catch (...) {
		srt_comm_abort(comm, "an exception without a sentence");
		throw;
	}
}

/// A pass of a unit, from its construction to end(): forward_pass, backward_pass.
///
/// The destructor ends nothing: an end can fail, and that of a backward pass starts sums, which a rank that has thrown
/// cannot complete. A pass that an exception leaves stays open, and nothing waits for it. All ranks may then call
/// srt_engine_reset() and go on; or abort_on_throw() tells the other ranks, and the engine is destroyed.
template <srt_status_t (*begin_fn)(srt_unit_t *, srt_stream_t *),
	  srt_status_t (*end_fn)(srt_unit_t *, srt_stream_t *)>
class [[nodiscard]] unit_pass
{
      public:
	/// Begins the pass. Unit and stream must outlive it.
	unit_pass(srt_unit_t *unit, srt_stream_t *stream) : unit_(unit), stream_(stream)
	{
		check(begin_fn(unit, stream));
	}
	unit_pass(const unit_pass &) = delete;
	unit_pass &operator=(const unit_pass &) = delete;
	/// Ends the pass. Once.
	void end()
	{
		check(end_fn(unit_, stream_));
	}

      private:
	srt_unit_t *unit_;
	srt_stream_t *stream_;
};
using forward_pass = unit_pass<srt_unit_forward_begin, srt_unit_forward_end>;
using backward_pass = unit_pass<srt_unit_backward_begin, srt_unit_backward_end>;

} // namespace shardrt

#endif
