// Trains the models of examples/05_mnist and 06_cifar10 as a user does, on small made-up sets of images.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/program.h"
#include "tests/support/image_files.h"

namespace trivet::test {
namespace {

using testing::HasSubstr;
using testing::Not;

class TrainImages : public testing::Test {
 protected:
  TrainImages() {
    std::filesystem::create_directory(folder.at("mnist"));
    write_mnist("train", 80);
    write_mnist("t10k", 20);
  }
  // Images of 28 x 28: class c has a bright row 2 c + 4.
  void write_mnist(const std::string& prefix, uint32_t count) {
    std::string pixels, labels;
    for (uint32_t i = 0; i < count; ++i) {
      std::string image(28 * 28, '\x20');
      std::fill_n(image.begin() + (2 * (i % 10) + 4) * 28, 28, '\xf0');
      image[i * 7 % (28 * 28)] = '\x60';
      pixels += image, labels += static_cast<char>(i % 10);
    }
    folder.write("mnist/" + prefix + "-images-idx3-ubyte", idx_text({count, 28, 28}, pixels));
    folder.write("mnist/" + prefix + "-labels-idx1-ubyte", idx_text({count}, labels));
  }
  void write_cifar() {
    std::filesystem::create_directory(folder.at("cifar-10-batches-bin"));
    for (const std::string name :
         {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"}) {
      std::string records;
      for (int i = 0; i < 20; ++i)
        records += std::string(1, static_cast<char>(i % 10)) + std::string(3072, static_cast<char>(20 * i));
      folder.write("cifar-10-batches-bin/" + name + ".bin", records);
    }
  }
  Output train(const std::string& example, const std::string& arguments) const {
    return folder.run("train " TRIVET_SOURCE_DIR "/examples/" + example + " " + arguments);
  }
  std::string loss_bits(const std::string& metrics) const {
    std::string bits;
    const std::string text = folder.read(metrics), key = "\"loss_bits\": \"";
    for (size_t at = text.find(key); at != std::string::npos; at = text.find(key, at + 1))
      bits += text.substr(at + key.size(), 8) + " ";
    return bits;
  }

  Folder folder;
};

TEST_F(TrainImages, HorovodsNetLearnsAndItsAccuracyIsReported) {
  const Output out = train("05_mnist/horovod.json",
                           "--metrics m.jsonl --set run.directory=run --set training.epochs=0 --set training.steps=30 --set "
                           "training.evaluate_every=30 "
                           "--set train_micro_batch_size_per_gpu=16 --set optimizer.lr_scaling.rule=none");
  EXPECT_EQ(out.code, 0) << out.errors;
  EXPECT_THAT(out.text, HasSubstr("model   sequential, 11 layers on images [1, 28, 28], 1199882 parameters\n"));
  EXPECT_THAT(out.text, HasSubstr("data    mnist: 80 training images, 20 validation images, 10 classes\n"));
  EXPECT_THAT(out.text, HasSubstr(", accuracy 100.00 % over 20 images in "));
  EXPECT_THAT(out.text, HasSubstr("img/s"));
  EXPECT_THAT(out.text, Not(HasSubstr("tok")));
  EXPECT_THAT(folder.read("m.evaluation.jsonl"), HasSubstr("\"images\": 20, \"ms\": "));
  EXPECT_THAT(folder.read("m.evaluation.jsonl"), HasSubstr(", \"correct\": 20}\n"));
  const std::string page = folder.read("run/report.html");
  EXPECT_THAT(page, HasSubstr("<dt>Images per second</dt>"));
  EXPECT_THAT(page, HasSubstr("<dt>Validation accuracy</dt><dd>100.00 %</dd><dd class=\"more\">best 100.00 % at step 30</dd>"));
  EXPECT_THAT(page, HasSubstr("<h2>Predictions after step 30</h2>"));
  EXPECT_THAT(page, HasSubstr("<li><img alt=\"Validation image 15\" src=\"data:image/png;base64,"));
  EXPECT_THAT(page, Not(HasSubstr("Validation image 16")));
  EXPECT_THAT(page, Not(HasSubstr("class=\"wrong\"")));
}

TEST_F(TrainImages, RanksAndStagesGiveTheSameBitsInLayoutModeAlsoWhenResumed) {
  const std::string same =
      "--set training.epochs=0 --set training.steps=4 --set training.evaluate_every=4 --set train_batch_size=16 --set "
      "train_micro_batch_size_per_gpu=4 --set reproducible=layout --set checkpoint.every_steps=2 ";
  const Output one =
      train("05_mnist/horovod.json", same + "--metrics one.jsonl --set checkpoint.directory=one --set run.directory=of_one");
  EXPECT_EQ(one.code, 0) << one.errors;
  int run = 0;
  for (const char* layout : {"--ranks 2 --set zero_optimization.stage=1", "--ranks 4 --set zero_optimization.stage=2",
                             "--ranks 4 --set zero_optimization.stage=3 --set parallel.pipeline=2"}) {
    const std::string name = "run" + std::to_string(run++);
    const Output other =
        train("05_mnist/horovod.json", same + "--metrics " + name + ".jsonl --set checkpoint.directory=" + name +
                                           " --set run.directory=of_" + name + " " + layout);
    EXPECT_EQ(other.code, 0) << other.errors;
    EXPECT_EQ(loss_bits(name + ".jsonl"), loss_bits("one.jsonl")) << layout;
    EXPECT_EQ(loss_bits(name + ".evaluation.jsonl"), loss_bits("one.evaluation.jsonl")) << layout;
    EXPECT_EQ(folder.read("of_" + name + "/predictions.json"), folder.read("of_one/predictions.json")) << layout;
  }
  EXPECT_THAT(folder.read("of_one/predictions.json"), HasSubstr("\"right\":false,\"target\":\""));
  const Output resumed =
      train("05_mnist/horovod.json",
            same + "--metrics run0.jsonl --set checkpoint.directory=resumed --resume run0/step-00000002 --ranks 1");
  EXPECT_EQ(resumed.code, 0) << resumed.errors;
  EXPECT_EQ(loss_bits("run0.jsonl"), loss_bits("one.jsonl"));
}

TEST_F(TrainImages, TensorFlowsNetTrains) {
  const Output out = train("05_mnist/tensorflow.json", "--set training.steps=2 --set train_micro_batch_size_per_gpu=8");
  EXPECT_EQ(out.code, 0) << out.errors;
  EXPECT_THAT(out.text, HasSubstr("2770634 parameters"));
}

TEST_F(TrainImages, BothNetsForCifarTrain) {
  write_cifar();
  const Output deepspeed = train("06_cifar10/deepspeed.json", "--ranks 2 --set training.epochs=0 --set training.steps=2");
  EXPECT_EQ(deepspeed.code, 0) << deepspeed.errors;
  EXPECT_THAT(deepspeed.text, HasSubstr("62006 parameters"));
  EXPECT_THAT(deepspeed.text, HasSubstr("100 training images, 20 validation images, 10 classes"));
  const Output ddp = train("06_cifar10/ddp.json", "--set training.epochs=0 --set training.steps=2");
  EXPECT_EQ(ddp.code, 0) << ddp.errors;
  EXPECT_THAT(ddp.text, HasSubstr("657342 parameters"));
}

// 80 images: a step of 16 divides them, one of 12 leaves rows that batch norm would count.
TEST_F(TrainImages, PyTorchsSamplerGivesBatchNormNoEmptyRows) {
  const auto with_batches_of = [&](const std::string& images, const std::string& further) {
    return train("05_mnist/horovod.json",
                 "--set 'model.network=[\"flatten\", \"dense 4\", \"batch_norm\", \"dense 10\"]' --set data.sampler=pytorch "
                 "--set training.epochs=1 --set training.evaluate_every=0 --set checkpoint.directory= "
                 "--set train_micro_batch_size_per_gpu=" +
                     images + " " + further);
  };
  EXPECT_EQ(with_batches_of("16", "").code, 0);
  EXPECT_EQ(with_batches_of("12", "--set dataloader_drop_last=true").code, 0);
  const Output out = with_batches_of("12", "");
  EXPECT_EQ(out.code, 2);
  EXPECT_THAT(out.errors,
              HasSubstr("data.sampler: with \"pytorch\" the last step of an epoch has rows without a sample here, and "
                        "layer 3.batch_norm would count them in its statistics; set dataloader_drop_last to true"));
  const Output accumulated =
      with_batches_of("16", "--set dataloader_drop_last=true --set gradient_accumulation_steps=2");  // of 5 microbatches
  EXPECT_EQ(accumulated.code, 2);
  EXPECT_THAT(accumulated.errors,
              HasSubstr("a gradient_accumulation_steps that divides the microbatches of a rank in an epoch"));
}

TEST_F(TrainImages, AVisionTransformerGivesTheSameBitsOnEveryLayout) {
  const std::string same =
      "--set training.epochs=0 --set training.steps=3 --set training.evaluate_every=3 --set train_batch_size=8 --set "
      "train_micro_batch_size_per_gpu=2 --set reproducible=layout --set scheduler.params.warmup_num_steps=1 --set "
      "scheduler.params.total_num_steps=10 ";
  const Output one = train("05_mnist/vision_transformer.json", same + "--metrics one.jsonl --set checkpoint.directory=one");
  EXPECT_EQ(one.code, 0) << one.errors;
  int run = 0;
  for (const char* layout :
       {"--ranks 2 --set zero_optimization.stage=1", "--ranks 2 --set zero_optimization.stage=2",
        "--ranks 4 --set zero_optimization.stage=3 --set parallel.pipeline=2 --set pipeline.schedule=zb-h1",
        "--ranks 2 --set zero_optimization.stage=3 --set activation_checkpointing.mode=full",
        "--set activation_checkpointing.mode=selective"}) {
    const std::string name = "other" + std::to_string(run++);
    const Output other = train("05_mnist/vision_transformer.json",
                               same + "--metrics " + name + ".jsonl --set checkpoint.directory=" + name + " " + layout);
    EXPECT_EQ(other.code, 0) << other.errors;
    EXPECT_EQ(loss_bits(name + ".jsonl"), loss_bits("one.jsonl")) << layout;
    EXPECT_EQ(loss_bits(name + ".evaluation.jsonl"), loss_bits("one.evaluation.jsonl")) << layout;
  }
}

// Words of the letters a, b and c, written as vertical bars of three kinds.
class TrainWords : public TrainImages {
 protected:
  static constexpr int kRows = 4, kColumns = 16;

  TrainWords() {
    write_words("train", 48);
    write_words("test", 12);
  }
  void write_words(const std::string& part, int count) {
    std::filesystem::create_directories(folder.at("words/" + part));
    std::string labels;
    for (int i = 0; i < count; ++i) {
      std::string text;
      for (int place = 0; place <= i % 3; ++place) text += static_cast<char>('a' + (i / 3 + place * (i % 5)) % 3);
      folder.write("words/" + part + "/" + std::to_string(i) + ".png", picture(text));
      labels += std::to_string(i) + ".png\t" + text + "\n";
    }
    folder.write("words/" + part + "/labels.txt", labels);
  }
  // A letter has 4 columns: 'a' a bright one in the upper half, 'b' in the lower half, 'c' in both.
  static std::string picture(const std::string& text) {
    std::string rows;
    for (int row = 0; row < kRows; ++row) {
      std::string line(kColumns, '\0');
      for (size_t i = 0; i < text.size(); ++i)
        if (text[i] == 'c' || (text[i] == 'a') == (row < kRows / 2)) line[4 * i + 1] = '\xff';
      rows += std::string(1, '\0') + line;
    }
    return PngText{.rows = kRows, .cols = kColumns, .stored = rows}.text();
  }
  std::string write_config(const std::string& loss, int classes) {
    folder.write("words.json", R"({
  "model": {"type": "sequential", "input": [1, 4, 16],
            "network": ["conv 8 padding 1", "relu", "columns", "dense 16", "positions", "block 2", "layer_norm", "dense )" +
                                   std::to_string(classes) + R"(", ")" + loss + R"("]},
  "data": {"train": "words"}, "training": {"steps": 60, "seed": 3, "evaluate_every": 60},
  "train_micro_batch_size_per_gpu": 12, "optimizer": {"type": "Adam", "params": {"lr": 0.01}}})");
    return "words.json ";
  }
};

TEST_F(TrainWords, LearnsToReadThemAndReportsHowManyAreRight) {
  const Output out = folder.run("train " + write_config("ctc 3", 4) + "--metrics m.jsonl --set run.directory=run");
  EXPECT_EQ(out.code, 0) << out.errors;
  EXPECT_THAT(out.text, HasSubstr("data    words: 48 training images, 12 validation images, 3 characters\n"));
  EXPECT_THAT(out.text, HasSubstr(", accuracy 100.00 % over 12 images in "));
  EXPECT_THAT(folder.read("run/predictions.json"),
              HasSubstr(R"({"sample":2,"right":true,"target":"acb","predicted":"acb","png":)"));
}

TEST_F(TrainWords, GivesTheSameBitsOnEveryLayout) {
  const std::string same = "train " + write_config("ctc 4", 5) +
                           "--set training.steps=3 --set training.evaluate_every=3 --set train_batch_size=24 --set "
                           "train_micro_batch_size_per_gpu=6 --set reproducible=layout ";
  const Output one = folder.run(same + "--metrics one.jsonl --set checkpoint.directory=one --set run.directory=of_one");
  EXPECT_EQ(one.code, 0) << one.errors;
  int run = 0;
  for (const char* layout :
       {"--ranks 2 --set zero_optimization.stage=2", "--ranks 4 --set zero_optimization.stage=3 --set parallel.pipeline=2"}) {
    const std::string name = "other" + std::to_string(run++);
    const Output other = folder.run(same + "--metrics " + name + ".jsonl --set checkpoint.directory=" + name +
                                    " --set run.directory=of_" + name + " " + layout);
    EXPECT_EQ(folder.read("of_" + name + "/predictions.json"), folder.read("of_one/predictions.json")) << layout;
    EXPECT_EQ(other.code, 0) << other.errors;
    EXPECT_EQ(loss_bits(name + ".jsonl"), loss_bits("one.jsonl")) << layout;
    EXPECT_EQ(loss_bits(name + ".evaluation.jsonl"), loss_bits("one.evaluation.jsonl")) << layout;
  }
}

// One step over all 48 images is the same step when a part of its rows has no image, and when it is accumulated.
TEST_F(TrainWords, ATextCountsOnceAndRowsWithoutAnImageDoNot) {
  const std::string same =
      "train " + write_config("ctc 4", 5) +
      "--set data.sampler=pytorch --set training.steps=1 --set training.evaluate_every=1 --metrics m.jsonl ";
  const auto number = [&](const std::string& file, const std::string& key) {
    const std::string text = folder.read(file);
    return std::stod(text.substr(text.find("\"" + key + "\": ") + key.size() + 4));
  };
  ASSERT_EQ(folder.run(same + "--set train_micro_batch_size_per_gpu=48").code, 0);
  const double loss = number("m.jsonl", "loss"), norm = number("m.jsonl", "grad_norm");
  const double validation = number("m.evaluation.jsonl", "loss");
  for (const char* batch : {"--set train_micro_batch_size_per_gpu=64",
                            "--set train_micro_batch_size_per_gpu=10 --set gradient_accumulation_steps=5"}) {
    const Output out = folder.run(same + batch);
    EXPECT_EQ(out.code, 0) << out.errors;
    EXPECT_EQ(number("m.jsonl", "images"), 48);
    EXPECT_EQ(number("m.evaluation.jsonl", "images"), 12);
    EXPECT_NEAR(number("m.jsonl", "loss"), loss, 1e-5 * loss) << batch;
    EXPECT_NEAR(number("m.jsonl", "grad_norm"), norm, 1e-4 * norm) << batch;
    EXPECT_NEAR(number("m.evaluation.jsonl", "loss"), validation, 1e-3 * validation) << batch;
  }
}

TEST_F(TrainWords, ValidationImagesHaveTheNumbersOfTheTrainingCharacters) {
  const std::string command = "train " + write_config("ctc 3", 4) + "--set training.steps=1 --set training.evaluate_every=1 ";
  ASSERT_EQ(folder.run(command + "--metrics m.jsonl").code, 0);
  std::filesystem::rename(folder.at("words/test"), folder.at("elsewhere"));
  ASSERT_EQ(folder.run(command + "--set data.validation=elsewhere --metrics other.jsonl").code, 0);
  EXPECT_EQ(loss_bits("other.evaluation.jsonl"), loss_bits("m.evaluation.jsonl"));
  folder.write("elsewhere/labels.txt", "0.png\tc\n");  // alone, this character would have the number 1
  EXPECT_EQ(folder.run(command + "--set data.validation=elsewhere").code, 0);
  folder.write("elsewhere/labels.txt", "0.png\td\n");
  EXPECT_THAT(folder.run(command + "--set data.validation=elsewhere").errors,
              HasSubstr("elsewhere/labels.txt: \"d\" has the character 'd', which the training images do not have"));
  std::filesystem::create_directories(folder.at("folders/a"));
  std::filesystem::copy(folder.at("words/train/0.png"), folder.at("folders/a/0.png"));
  EXPECT_THAT(
      folder.run(command + "--set data.validation=folders").errors,
      HasSubstr("data.validation: folders has classes, but the training images have texts; use images of the same kind"));
}

TEST_F(TrainWords, NetworksThatDoNotFitAreRefused) {
  const auto expect_refused = [&](const std::string& loss, int classes, const std::string& options,
                                  const std::string& message) {
    const Output out = folder.run("train " + write_config(loss, classes) + options);
    EXPECT_EQ(out.code, 2);
    EXPECT_THAT(out.errors, HasSubstr("model.network: " + message));
  };
  expect_refused("ctc 2", 4, "",
                 "words has a text of 3 characters, but the list of layers reads at most 2; end with \"ctc 3\"");
  expect_refused("ctc 3", 3, "", "\"ctc\" gets 3 classes, but words has 3 characters and needs one more for the blank; use 4");
  expect_refused("mean", 4, "", "words has a text of 3 characters, but the list of layers reads at most 1; end with \"ctc 3\"");
  expect_refused("ctc 5", 11, "--set data.train=mnist --set 'model.input=[1,28,28]'",
                 "mnist has classes, but the list of layers ends with \"ctc\", which reads texts; name a folder with a file "
                 "labels.txt (docs/data.md)");
}

TEST_F(TrainImages, AnotherNumberOfClassesIsRefused) {
  const Output out = train("05_mnist/horovod.json", "--set 'model.network=[\"flatten\", \"dense 9\"]'");
  EXPECT_EQ(out.code, 2);
  EXPECT_THAT(out.errors, HasSubstr("model.network: the last layer gives 9 numbers, but mnist has 10 classes; use as many"));
}

TEST_F(TrainImages, EvaluationNeedsImages) {
  std::filesystem::remove(folder.at("mnist/t10k-images-idx3-ubyte"));
  const Output out = train("05_mnist/horovod.json", "--set data.validation_fraction=0");
  EXPECT_EQ(out.code, 2);
  EXPECT_THAT(out.errors, HasSubstr("training.evaluate_every: 469 needs something to evaluate on; give data.validation or a "
                                    "data.validation_fraction above 0, or use 0"));
}

TEST_F(TrainImages, AModelOfImagesGeneratesNoText) {
  const Output trained = train("05_mnist/horovod.json",
                               "--set training.epochs=0 --set training.steps=1 --set training.evaluate_every=0 --set "
                               "train_micro_batch_size_per_gpu=4");
  EXPECT_EQ(trained.code, 0) << trained.errors;
  const Output out = folder.run("generate checkpoints");
  EXPECT_EQ(out.code, 2);
  EXPECT_THAT(out.errors,
              HasSubstr("checkpoints: its model of type \"sequential\" reads images; only models of text generate"));
}

// What needs no data.
TEST_F(TrainImages, AreEstimatedAndPlannedAndTheirSchedulesDrawn) {
  const std::string config = TRIVET_SOURCE_DIR "/examples/05_mnist/horovod.json";
  for (const std::string& command :
       {"plan " + config + " --world-size 2", "estimate " + config, "config check " + config, "config explain " + config}) {
    const Output out = folder.run(command);
    EXPECT_EQ(out.code, 0) << command << ": " << out.errors;
  }
  EXPECT_THAT(folder.run("plan " + config).text, HasSubstr("1199882 parameters in 12 blocks"));
}

}  // namespace
}  // namespace trivet::test
