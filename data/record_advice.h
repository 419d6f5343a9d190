// Advises what to do with an object of JSON that has no key of a document (json_lines.h): which of the layouts that data sets
// are published in it has, and how to write it instead.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace trivet::data {

// Empty if nothing is known of such objects.
std::string advice_for_record(const nlohmann::json& object);

}  // namespace trivet::data
