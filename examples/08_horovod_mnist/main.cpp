// Horovod's MNIST example as a C++ program: the same net, batch, optimizer, learning rates and warm-up (README.md).
//
//   example_08_horovod_mnist                                    a check with made-up images on 1 and 2 ranks
//   trivet launch --num_gpus 2 example_08_horovod_mnist --data DIRECTORY
//                                                               MNIST; DIRECTORY has the four IDX files, unpacked
//
// Every call of Horovod has its name here; docs/horovod.md explains the differences.
#include <charconv>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "hvd.h"
#include "images.h"
#include "kernels/kernels.h"
#include "net.h"

namespace {

using namespace trivet;

struct Settings {
  std::string data, model_directory;                        // empty: made-up images; no checkpoints
  int64_t epochs = 24, steps_per_epoch = 500, batch = 128;  // steps are divided by the number of ranks; the batch is a rank's
  double lr = 0.001;
  int warmup_epochs = 3;
};

// Keras' Adam.
class Adam {
 public:
  Adam(kernels::Kernels& kernels, Net& net) : kernels_(kernels), net_(net) {
    for (int p = 0; p < Net::kParameters; ++p)
      for (auto& moment : moments_) moment[p].resize(net.weights[p].size());
  }
  void step() {
    ++steps_;
    for (int p = 0; p < Net::kParameters; ++p)
      kernels_.adam({.master = hvd::view(net_.weights[p]),
                     .moment1 = hvd::view(moments_[0][p]),
                     .moment2 = hvd::view(moments_[1][p]),
                     .gradient = hvd::view(net_.gradients[p]),
                     .lr = lr,
                     .epsilon = 1e-7,
                     .correction1 = kernels::bias_correction(0.9, steps_),
                     .correction2 = kernels::bias_correction(0.999, steps_)});
  }

  double lr = 0;

 private:
  kernels::Kernels& kernels_;
  Net& net_;
  std::vector<float> moments_[2][Net::kParameters];
  int64_t steps_ = 0;
};

std::vector<hvd::NamedTensor> named(std::vector<float> (&tensors)[Net::kParameters]) {
  std::vector<hvd::NamedTensor> list;
  for (int p = 0; p < Net::kParameters; ++p) list.push_back({Net::name(p), hvd::view(tensors[p])});
  return list;
}

// The images in an order that changes with the epoch and is the same on all ranks.
std::vector<int64_t> shuffled(int64_t count, int64_t epoch) {
  std::vector<int64_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<uint32_t>(epoch)));
  return order;
}

// This rank's batch of a step: ranks take turns in the order of the epoch.
std::vector<int64_t> batch_of(const std::vector<int64_t>& order, int64_t step, int64_t batch, hvd::Communicator& hvd) {
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < batch; ++i)
    indices.push_back(order[((step * hvd.size() + hvd.rank()) * batch + i) % static_cast<int64_t>(order.size())]);
  return indices;
}

double test_accuracy(hvd::Communicator& hvd, Net& net, const Images& test) {
  std::vector<int64_t> own;
  for (int64_t i = hvd.rank(); i < test.count(); i += hvd.size()) own.push_back(i);
  const auto correct = static_cast<double>(net.run(test, own).correct);
  return hvd::metric_average(hvd, correct, "correct") * hvd.size() / static_cast<double>(test.count());
}

void save(const Net& net, const std::string& directory, int64_t epoch) {
  const std::string path = directory + "/checkpoint-" + std::to_string(epoch) + ".bin";
  std::ofstream file(path, std::ios::binary);
  for (const auto& weight : net.weights)
    file.write(reinterpret_cast<const char*>(weight.data()), static_cast<std::streamsize>(weight.size() * sizeof(float)));
  if (!file.flush()) throw StorageError(path + ": it cannot be written; name a directory that exists and has space");
}

struct Outcome {
  double first_loss = 0, last_loss = 0, accuracy = 0;
  std::vector<float> weights;  // a part of them
};

Outcome train(hvd::Communicator& hvd, const Settings& settings) {
  const bool made_up = settings.data.empty();
  const Images images = made_up ? made_up_images(1024, 1) : read_mnist(settings.data, "train");
  const Images test = made_up ? made_up_images(200, 2) : read_mnist(settings.data, "t10k");
  const auto kernels = kernels::make_cpu_kernels(1);
  Net net(*kernels, 1 + hvd.rank());  // ranks begin with different weights, until those of rank 0 are broadcast
  Adam adam(*kernels, net);
  hvd::DistributedOptimizer optimizer(
      hvd, [&] { adam.step(); }, named(net.gradients));
  hvd.broadcast_parameters(named(net.weights), 0);
  if (hvd.rank() == 0) std::printf("%lld parameters, %d ranks\n", static_cast<long long>(net.parameter_count()), hvd.size());

  Outcome outcome;
  const int64_t steps = std::max<int64_t>(1, settings.steps_per_epoch / hvd.size());
  for (int64_t epoch = 0; epoch < settings.epochs; ++epoch) {
    const auto order = shuffled(images.count(), epoch);
    double loss = 0;
    for (int64_t step = 0; step < steps; ++step) {
      const double now = static_cast<double>(epoch) + static_cast<double>(step) / static_cast<double>(steps);
      adam.lr = hvd::warmup_learning_rate(settings.lr * hvd.size(), now, settings.warmup_epochs, hvd.size());
      const auto indices = batch_of(order, step, settings.batch, hvd);
      const uint64_t dropout = random_key(hvd.rank(), "dropout") + static_cast<uint64_t>(epoch * steps + step) * 1024;
      const auto score = net.run(images, indices, dropout, [&](size_t parameter) { optimizer.gradient_ready(parameter); });
      optimizer.step();
      const double mean = score.loss / static_cast<double>(settings.batch);
      if (epoch == 0 && step == 0) outcome.first_loss = hvd::metric_average(hvd, mean, "first loss");
      loss += mean / static_cast<double>(steps);
    }
    outcome.last_loss = hvd::metric_average(hvd, loss, "loss");
    outcome.accuracy = test_accuracy(hvd, net, test);
    if (hvd.rank() != 0) continue;
    std::printf("Epoch %lld/%lld  loss: %.4f  test accuracy: %.4f  lr: %.4g\n", static_cast<long long>(epoch + 1),
                static_cast<long long>(settings.epochs), outcome.last_loss, outcome.accuracy, adam.lr);
    if (!settings.model_directory.empty()) save(net, settings.model_directory, epoch + 1);
  }
  outcome.weights = net.weights[Net::kConv2];
  return outcome;
}

// Ranks must end with equal weights and have learned the made-up images.
int check() {
  bool good = true;
  for (int ranks : {1, 2})
    hvd::run(ranks, [&](hvd::Communicator& hvd) {
      const Outcome outcome = train(hvd, {.epochs = 2, .steps_per_epoch = 24, .batch = 32 / hvd.size(), .warmup_epochs = 1});
      const hvd::Tensor all = hvd.allgather(hvd::view(outcome.weights), {.name = "weights"});
      const auto count = static_cast<int64_t>(outcome.weights.size());
      bool equal = true;
      for (int64_t i = 0; i < all.shape()[0]; ++i) equal = equal && all.as<float>()[i] == outcome.weights[i % count];
      if (hvd.rank() != 0) return;
      std::printf("loss %.4f -> %.4f\n", outcome.first_loss, outcome.last_loss);
      good = good && equal && outcome.last_loss < outcome.first_loss / 2 && outcome.accuracy > 0.9;
    });
  std::puts(good ? "every rank has learned the same weights" : "FAILED: ranks differ, or nothing was learned");
  return good ? 0 : 1;
}

int64_t number(const std::string& key, const std::string& value) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc{} || end != value.data() + value.size() || number < 1)
    throw ConfigError(key + ": \"" + value + "\" is not accepted; use a number of at least 1");
  return number;
}

Settings parse(int count, char** arguments) {
  Settings settings;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string key = arguments[i], value = arguments[i + 1];
    if (key == "--data")
      settings.data = value;
    else if (key == "--model-dir")
      settings.model_directory = value;
    else if (key == "--epochs")
      settings.epochs = number(key, value);
    else if (key == "--steps-per-epoch")
      settings.steps_per_epoch = number(key, value);
    else
      throw ConfigError(key + ": unknown; use --data, --epochs, --steps-per-epoch, --model-dir");
  }
  if (settings.data.empty() || count % 2 == 0) throw ConfigError("use --data DIRECTORY; every option has a value");
  return settings;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    if (count == 1) return check();
    const Settings settings = parse(count, arguments);
    const auto hvd = hvd::init();
    train(*hvd, settings);
    hvd->shutdown();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
