// Stream capture and graphs. A graph runs its nodes one after another in the order of the capture, which is an order that the
// graph allows, on the stream that it is launched on.
#include <algorithm>
#include <mutex>

#include "runtime.h"

struct CUgraph_st {
  std::vector<cuda_shim::Capture::Node> nodes;
};
struct CUgraphExec_st {
  std::shared_ptr<const std::vector<cuda_shim::Capture::Node>> nodes;
};

namespace cuda_shim {
namespace {

// The capture that this thread has begun and not ended, unless its mode is relaxed, and the latest capture of any thread whose
// mode is global.
thread_local std::weak_ptr<Capture> own_capture;
std::mutex global_mutex;
std::weak_ptr<Capture> global_capture;

std::shared_ptr<Capture> capture_that_refuses() {
  if (auto own = own_capture.lock(); own && !own->ended) return own;
  const std::lock_guard lock(global_mutex);
  auto global = global_capture.lock();
  return global && !global->ended ? global : nullptr;
}

// Whether all captured work of all streams comes before the end of the origin stream's.
bool joined(const Capture& capture) {
  std::vector<bool> before(capture.nodes.size(), false);
  std::vector<int> open = capture.origin->last_nodes;
  while (!open.empty()) {
    const int node = open.back();
    open.pop_back();
    if (before[node]) continue;
    before[node] = true;
    open.insert(open.end(), capture.nodes[node].after.begin(), capture.nodes[node].after.end());
  }
  return std::all_of(before.begin(), before.end(), [](bool is) { return is; });
}

}  // namespace

cudaError_t refuse_in_capture() {
  const auto capture = capture_that_refuses();
  if (!capture) return cudaSuccess;
  capture->valid = false;
  return cudaErrorStreamCaptureUnsupported;
}

void join_capture(CUstream_st& stream, const Recording& recording) {
  if (!stream.capture) {
    stream.capture = recording.capture;
    stream.last_nodes.clear();
    recording.capture->streams.push_back(&stream);
  }
  for (int node : recording.nodes)
    if (std::find(stream.last_nodes.begin(), stream.last_nodes.end(), node) == stream.last_nodes.end())
      stream.last_nodes.push_back(node);
}

}  // namespace cuda_shim

using cuda_shim::call;
using cuda_shim::Capture;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return call([&] {
    if (!stream) return cudaErrorStreamCaptureUnsupported;
    if (stream->capture) return cudaErrorStreamCaptureUnsupported;
    stream->capture = std::make_shared<Capture>();
    stream->capture->origin = stream;
    stream->capture->mode = mode;
    stream->capture->streams = {stream};
    stream->last_nodes.clear();
    if (mode != cudaStreamCaptureModeRelaxed) cuda_shim::own_capture = stream->capture;
    const std::lock_guard lock(cuda_shim::global_mutex);
    if (mode == cudaStreamCaptureModeGlobal) cuda_shim::global_capture = stream->capture;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return call([&] {
    *graph = nullptr;
    if (!stream || !stream->capture || stream->capture->origin != stream) return cudaErrorStreamCaptureUnmatched;
    const auto capture = stream->capture;
    if (capture->mode != cudaStreamCaptureModeRelaxed && cuda_shim::own_capture.lock() != capture)
      return cudaErrorStreamCaptureWrongThread;
    capture->ended = true;
    const bool all_joined = cuda_shim::joined(*capture);
    for (cudaStream_t each : capture->streams) {
      each->capture = nullptr;
      each->last_nodes.clear();
    }
    if (!capture->valid) return cudaErrorStreamCaptureInvalidated;
    if (!all_joined) return cudaErrorStreamCaptureUnjoined;
    *graph = new CUgraph_st{capture->nodes};
    return cudaSuccess;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return call([&] {
    *status = cudaStreamCaptureStatusNone;
    if (stream && stream->capture)
      *status = stream->capture->valid ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusInvalidated;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  return call([&] {
    *executable = new CUgraphExec_st{std::make_shared<const std::vector<Capture::Node>>(graph->nodes)};
    return cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return call([&] {
    ++cuda_shim::runtime().counts.graph_launches;
    cuda_shim::resolve(stream)->enqueue_on_host([nodes = executable->nodes] {
      for (const auto& node : *nodes) node.work();
    });
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}
