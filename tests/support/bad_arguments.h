// Tables of what can be wrong with a launcher's arguments. Valid arguments hold addresses that are
// never used, so they are handed to a launcher only where it cannot launch: without CUDA.
#pragma once
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

#include "sage/types.h"

namespace bad_arguments {

inline constexpr size_t kMemoryBytes = 1024;
alignas(kMemoryBytes) inline char memory[kMemoryBytes];

template <class T>
T* address() {
  return reinterpret_cast<T*>(memory);
}

template <class Params>
struct Pointer {
  const char* name;
  void (*set)(Params& p, char* address);
  size_t alignment;  // bytes
  bool required;
};
template <class Params, auto kMember>
void set_member(Params& p, char* address) {
  using Address = std::remove_reference_t<decltype(p.*kMember)>;
  p.*kMember = reinterpret_cast<Address>(address);
}

template <class Params>
struct Change {
  const char* name;
  sage::StatusCode code;
  void (*apply)(Params& p);
};

// Arguments in order come back as kOk from a check, and from a launcher that has no CUDA as that.
inline void expect_accepted(const sage::Status& status, const std::string& what) {
  EXPECT_TRUE(status.ok() || status.reason == std::string("built without CUDA"))
      << what << ": " << status.reason;
}

// `run` launches for real if the arguments are in order.
template <class Params>
struct Subject {
  Params valid;
  sage::Status (*run)(const Params& p);
  bool launches = false;

  void accepts(const Params& p, const std::string& what) const {
    if (!launches) expect_accepted(run(p), what);
  }
  void refuses(const Params& p, sage::StatusCode code, const std::string& what) const {
    const sage::Status status = run(p);
    EXPECT_EQ(status.code, code) << what << ": " << status.reason;
    EXPECT_STRNE(status.reason, "") << what;
    EXPECT_STRNE(status.reason, "built without CUDA") << what;
  }

  void change(const std::vector<Change<Params>>& changes) const {
    accepts(valid, "valid");
    for (const Change<Params>& c : changes) {
      Params p = valid;
      c.apply(p);
      if (c.code == sage::StatusCode::kOk) {
        accepts(p, c.name);
      } else {
        refuses(p, c.code, c.name);
      }
    }
  }
  // Every pointer null, and at every power of two up to twice its alignment.
  void move(const std::vector<Pointer<Params>>& pointers) const {
    for (const Pointer<Params>& pointer : pointers) {
      const std::string name = pointer.name;
      Params p = valid;
      pointer.set(p, nullptr);
      if (pointer.required) {
        refuses(p, sage::StatusCode::kInvalidArgument, name + " null");
      } else {
        accepts(p, name + " null");
      }
      for (size_t offset = 1; offset <= 2 * pointer.alignment; offset *= 2) {
        pointer.set(p, memory + offset);
        const std::string what = name + " + " + std::to_string(offset);
        if (offset < pointer.alignment) {
          refuses(p, sage::StatusCode::kMisaligned, what);
        } else {
          accepts(p, what);
        }
      }
    }
  }
};

#ifdef SAGE_WITH_CUDA
inline constexpr bool kLaunches = true;
#else
inline constexpr bool kLaunches = false;
#endif

}  // namespace bad_arguments
