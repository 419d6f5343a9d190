// trivet checkpoint import | export: models in the formats of other programs.
#pragma once

namespace CLI {
class App;
}

namespace trivet::cli {

void add_exchange(CLI::App& checkpoint_commands);

}  // namespace trivet::cli
