// Which optimizers continue with what another one has kept.
#include "engine/resumed_config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/world.h"
#include "core/error.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/config/load.h"
#include "engine/engine.h"
#include "tests/support/temporary_folder.h"

namespace trivet {
namespace {

using testing::HasSubstr;

// An engine of this optimizer, which has done no step.
Engine engine_with(comm::World& world, const std::string& type, const std::string& params) {
  const Config config =
      parse_config(fmt::format(R"({{"model": {{"layers": 1, "hidden_size": 8, "heads": 2, "sequence_length": 4}},
                                                      "train_batch_size": 1,
                                                      "optimizer": {{"type": "{}", "params": {{"lr": 0.01{}}}}}}})",
                               type, params),
                   "change");
  model::Model model = model::build(model::with_vocabulary(config.model, 11));
  Plan plan = make_plan(config, model, 1);
  return Engine(std::move(plan), std::move(model), world);
}

// Why the second optimizer does not continue from the first; empty: it does.
std::string refusal(const std::string& first, const std::string& second, const std::string& first_params = "",
                    const std::string& second_params = "") {
  const test::TemporaryFolder folder;
  std::string message;
  comm::run_threads(1, [&](comm::World& world) {
    engine_with(world, first, first_params).save(folder.at("all steps"));
    try {
      engine_with(world, second, second_params).load(folder.at("all steps"));
    } catch (const ConfigError& error) {
      message = error.what();
      message.replace(message.find(folder.path()), folder.path().size(), "F");
      message.replace(message.rfind(folder.path()), folder.path().size(), "F");
    }
  });
  return message;
}

TEST(OptimizerChange, IsRefusedUnlessTheStatesAreTheSame) {
  const auto is_adam = [](std::string_view name) { return name == "Adam" || name == "AdamW"; };
  for (const std::string first : {"AdamW", "Muon"})
    for (const auto& [second, type] : EnumNames<OptimizerType>::table) {
      const bool same = first == second || (is_adam(first) && is_adam(second));
      const std::string message = refusal(first, std::string(second));
      EXPECT_EQ(message.empty(), same) << first << " -> " << second << ": " << message;
      EXPECT_EQ(message.find("--init-from") == std::string::npos, same) << first << " -> " << second;
    }
}

TEST(OptimizerChange, SaysWhatToDo) {
  EXPECT_EQ(
      refusal("AdamW", "Muon"),
      "change: optimizer.type: \"Muon\" cannot continue from F/all steps/step-00000000, which was saved with \"AdamW\": what "
      "one "
      "optimizer has kept of the steps so far means nothing to the other; set it to \"AdamW\", or begin a new run with these "
      "weights and without the states: --init-from 'F/all steps/step-00000000'");
  const std::string momentum = R"(, "momentum": 0.9)";
  EXPECT_THAT(refusal("SGD", "SGD", momentum, ""), HasSubstr("optimizer.params.momentum: 0 cannot continue from"));
  EXPECT_THAT(refusal("SGD", "SGD", "", momentum), HasSubstr("it has no momentum; set it to 0, or"));
  EXPECT_EQ(refusal("SGD", "SGD", momentum, R"(, "momentum": 0.5)"), "");
}

// Steps that an earlier version saved with an optimizer that this one does not have.
TEST(OptimizerChange, FromAnOptimizerThatWasRemovedIsRefusedByName) {
  const test::TemporaryFolder folder;
  comm::run_threads(1, [&](comm::World& world) {
    Engine engine = engine_with(world, "AdamW", "");
    checkpoint::CheckpointStore store(real_file_system(), {.directory = folder.at("all steps"), .run_id = "engine"});
    store.save({.step = 0,
                .pieces = engine.pieces_to_save(),
                .state = to_text(engine.state()),
                .config = R"({"optimizer": {"type": "OneBitAdam", "params": {"freeze_step": 2}}})"},
               {});
    EXPECT_THAT([&] { engine.load(folder.at("all steps")); },
                testing::ThrowsMessage<ConfigError>(testing::StartsWith(
                    folder.at("all steps") + "/step-00000000:1:24: optimizer.type: \"OneBitAdam\" was removed")));
  });
}

}  // namespace
}  // namespace trivet
