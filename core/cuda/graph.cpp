#include "core/cuda/graph.h"

#include "core/cuda/error.h"
#include "core/error.h"

namespace trivet::cuda {
namespace {

using GraphHandle = UniqueHandle<cudaGraph_t, cudaGraphDestroy>;

// Other threads (a checkpoint's) may continue to do what a capture forbids: allocate, wait, query.
constexpr cudaStreamCaptureMode kMode = cudaStreamCaptureModeThreadLocal;

// Ends the capture whatever happens: a stream that stayed in capture would run no more work.
GraphHandle capture(Streams& streams, const std::function<void()>& work) {
  streams.join();
  CUDA_CHECK(cudaStreamBeginCapture(streams.compute(), kMode));
  cudaGraph_t graph = nullptr;
  try {
    const CaptureScope scope(streams);
    streams.fork();
    work();
    streams.join();
  } catch (...) {
    cudaStreamEndCapture(streams.compute(), &graph);  // its error is a consequence of the one thrown
    cudaGetLastError();
    const GraphHandle discarded(graph);
    throw;
  }
  CUDA_CHECK(cudaStreamEndCapture(streams.compute(), &graph));
  return GraphHandle(graph);
}

}  // namespace

Graph::Graph(Streams& streams, const std::function<void()>& work) : streams_(streams) {
  try {
    const GraphHandle graph = capture(streams, work);
    cudaGraphExec_t executable = nullptr;
    CUDA_CHECK(cudaGraphInstantiate(&executable, graph.get(), 0));
    executable_ = UniqueHandle<cudaGraphExec_t, cudaGraphExecDestroy>(executable);
  } catch (const OutOfMemoryError&) {
    throw;
  } catch (const DeviceError& error) {
    throw DeviceError(error.exit_code(), std::string("capturing a step as a CUDA graph: ") + error.what() +
                                             "; set cuda_graph to \"off\" to run without graphs");
  }
}

void Graph::launch() const {
  streams_.join();
  CUDA_CHECK(cudaGraphLaunch(executable_.get(), streams_.compute()));
  streams_.fork();
}

void RepeatedWork::run(const std::vector<int64_t>& key, const std::function<void()>& work) {
  if (key_ != key) {
    graph_.reset();
    work();
    key_ = key;
    return;
  }
  if (!graph_) graph_.emplace(streams_, work);
  graph_->launch();
}

}  // namespace trivet::cuda
