// checkpoint.*, nebula.*
#include "engine/config/section_builder.h"
#include "engine/config/tables.h"

namespace trivet::config {
namespace {

// Adds the keys for how DeepSpeed writes, and for the services that it can write to.
void add_writers(KeyTable& table) {
  SectionBase(table, "checkpoint.parallel_write")
      .inert("pipeline_stage", "false", "data-parallel ranks share the writing", "every rank writes what it owns");
  SectionBase writer(table, "checkpoint.writer");
  writer.not_used("DeepSpeed's writer of checkpoints", "checkpoint.asynchronous", "");
  writer.unsupported("type", "\"FAST\"", "DeepSpeed's writers");
  writer.unsupported("decoupled", "false", "write in another process").instead("checkpoint.asynchronous");
  writer.unsupported("io_buffer_size", "67108864", "bytes of the writer's buffer");
  writer.unsupported("io_buffer_double", "true", "use two buffers");
  writer.unsupported("data_parallel", "null", "which ranks write");
  writer.unsupported("io_multiplier", "1", "buffers per writer");
  writer.unsupported("show_statistics", "false", "print the writer's speed");

  SectionBase nebula(table, "nebula");
  nebula.not_used("Azure's checkpoint service", "checkpoint.directory");
  nebula.unsupported("enabled", "false", "Azure's checkpoint service");
  nebula.unsupported("enable_nebula_load", "true", "load through it");
  nebula.unsupported("nebula_load_path", "null", "folder that it loads from");
  nebula.unsupported("persistent_storage_path", "null", "folder that it saves to");
  nebula.unsupported("persistent_time_interval", "100", "seconds between its saves");
  nebula.unsupported("num_of_version_in_retention", "2", "number of checkpoints that it keeps");
  SectionBase(table, "").unsupported("datastates_ckpt", "null", "the DataStates engine").type(KeyType::Object);
  SectionBase(table, "datastates_ckpt").not_used("the DataStates engine", "checkpoint.asynchronous", "");
}

void add_memory_keys(KeyTable& table) {
  using M = MemoryCheckpointConfig;
  Section<M> memory(table, "checkpoint.memory", [](Config& c) -> M& { return c.checkpoint.memory; });
  memory.own();
  const auto saves = [](const Config& c) { return c.checkpoint.saves_to_memory(); };
  const std::string when = "checkpoint.memory.every_steps is above 0";
  memory
      .key("every_steps", &M::every_steps,
           "steps between checkpoints in the memory of the hosts, as well as those in checkpoint.directory; 0: none")
      .at_least(0);
  memory
      .key(
          "directory", &M::directory,
          "directory of each host in which they are, on a file system in memory: /dev/shm/NAME; removed when the run has ended "
          "and its last step is in checkpoint.directory")
      .active_when(when, saves);
  memory
      .key("replicas", &M::replicas,
           "number of hosts that keep copies of the files of the hosts before them, so that any that many hosts next to each "
           "other can be lost; 0: each host has its own files alone")
      .at_least(0)
      .active_when(when, saves);
}

}  // namespace

void add_checkpoint_keys(KeyTable& table) {
  using C = CheckpointConfig;
  Section<C> checkpoint(table, "checkpoint", [](Config& c) -> C& { return c.checkpoint; });
  checkpoint.own();
  const auto saves = [](const Config& c) { return !c.checkpoint.directory.empty(); };
  const std::string when = "checkpoint.directory is given";
  checkpoint.key("directory", &C::directory, "where checkpoints are written; empty: nowhere");
  checkpoint.key("every_steps", &C::every_steps, "steps between checkpoints; with `every_epochs` also 0, only the end is saved")
      .at_least(0)
      .active_when(when, saves);
  checkpoint.key("every_epochs", &C::every_epochs, "epochs between checkpoints; 0: none").at_least(0).active_when(when, saves);
  checkpoint
      .key("keep", &C::keep, "number of newest checkpoints kept, not counting those saved right after a skipped step; 0: all")
      .at_least(0)
      .active_when(when, saves);
  checkpoint.key("keep_best", &C::keep_best,
                 "save each step whose validation loss is the lowest so far, keep the last of these whatever `keep` says, and "
                 "name it in the file `best`, which commands accept as a checkpoint: DIR/best");
  checkpoint
      .key("replicas", &C::replicas,
           "0: all hosts must share `directory`; above 0: each host has its own, which also keeps copies of the files of that "
           "many hosts before it, so that any that many hosts next to each other can be lost")
      .at_least(0)
      .active_when(when, saves);
  checkpoint.key("asynchronous", &C::asynchronous, "training continues while a checkpoint is written")
      .active_when(
          when + ", nothing is offloaded to files, and no optimizer states are offloaded from a GPU to its host",
          [](const Config& c) { return !c.checkpoint.directory.empty() && !c.offloads_to_files() && !c.updates_on_host(); });
  checkpoint
      .key("signal", &C::signal,
           "the signal that the job scheduler sends before it ends the job (Slurm: --signal=USR1@120); on receiving it, trivet "
           "train does `signal_action`")
      .active_when(when, saves);
  checkpoint
      .key("signal_action", &C::signal_action,
           "what to do on that signal: save and continue, or save and exit with code 128 + signal")
      .active_when("checkpoint.signal and checkpoint.directory are both given", [](const Config& c) {
        return !c.checkpoint.directory.empty() && c.checkpoint.signal != WarningSignal::None;
      });
  checkpoint
      .key("stop_seconds", &C::stop_seconds,
           "seconds that trivet train has after SIGTERM, SIGINT or SIGHUP to finish the current step and save; then the run "
           "ends without them; 0: no limit")
      .at_least(0);
  checkpoint.inert("tag_validation", "\"Warn\"", "compare the checkpoint's name on all ranks", "it is always compared")
      .names({"Ignore", "Warn", "Fail"})
      .ignores_case();
  checkpoint.inert("load_universal", "false", "read the universal format",
                   "a checkpoint holds global shapes and loads on any layout");
  checkpoint.inert("checkpoint_serialization", "true", "PyTorch's zip format", "the format is Trivet's own");
  checkpoint.unused("use_node_local_storage", "false", "every host writes its own files").instead("checkpoint.replicas");
  add_memory_keys(table);
  add_writers(table);
}

}  // namespace trivet::config
