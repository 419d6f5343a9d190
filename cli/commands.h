// The subcommands of `trivet`, one file each. add_X registers the options and a callback with the program; the callback does
// the work, prints to stdout, and throws trivet::Error for errors that a user can cause. main.cpp turns errors into messages
// and exit codes.
#pragma once

namespace CLI {
class App;
}

namespace trivet::cli {

void add_train(CLI::App& program);
void add_replay(CLI::App& program);
void add_evaluate(CLI::App& program);
void add_launch(CLI::App& program);
void add_launch_agent(CLI::App& program);
void add_config(CLI::App& program);
void add_plan(CLI::App& program);
void add_report(CLI::App& program);
void add_tune(CLI::App& program);
void add_estimate(CLI::App& program);
void add_schedule(CLI::App& program);
void add_checkpoint(CLI::App& program);
void add_data(CLI::App& program);
void add_generate(CLI::App& program);
void add_doctor(CLI::App& program);
void add_bench(CLI::App& program);
void add_demo(CLI::App& program);
void add_completion(CLI::App& program);
void add_man_pages(CLI::App& program);

}  // namespace trivet::cli
