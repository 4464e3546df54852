// Request lengths from a CSV file with a header line.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace sagebench {

// Whole numbers of one column, in file order. UsageError names file, line, column and the columns
// there are.
std::vector<int64_t> read_trace_column(const std::string& path, const std::string& column);

}  // namespace sagebench
