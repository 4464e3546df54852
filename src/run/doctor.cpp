#include <filesystem>
#include <string>
#include <thread>

#include "run/device_info.h"
#include "run/executor.h"
#ifdef SAGE_WITH_CUDA
#include "run/cuda_device.h"
#endif

namespace sagebench {
namespace {

namespace fs = std::filesystem;

std::string capability_text(int capability) {
  return std::to_string(capability / 10) + "." + std::to_string(capability % 10);
}

// Where a shell would find the program, or where the toolkit puts it.
std::string find_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::string folders = (path ? path : "") + std::string(":/usr/local/cuda/bin");
  for (size_t at = 0; at <= folders.size();) {
    const size_t end = std::min(folders.find(':', at), folders.size());
    const fs::path file = fs::path(folders.substr(at, end - at)) / name;
    at = end + 1;
    std::error_code ignored;
    if (file.has_parent_path() && fs::is_regular_file(file, ignored)) return file.string();
  }
  return "";
}

struct ProgramRow {
  const char *name, *remedy;
};
constexpr ProgramRow kPrograms[] = {
    {"nvcc", "install the CUDA toolkit (13.0) to build the GPU kernels"},
    {"ncu", "install Nsight Compute for scripts/ncu.sh"},
    {"nsys", "install Nsight Systems for scripts/nsys.sh"},
    {"compute-sanitizer", "install the CUDA toolkit's compute-sanitizer for scripts/sanitize.sh"},
};

DoctorLine describe_build() {
  DoctorLine line{"build", "", "", true};
#ifdef SAGE_WITH_CUDA
  line.state = "CUDA " + cuda_toolkit_version() + ", code for " + SAGEBENCH_ARCHITECTURES;
#else
  line.state = "without CUDA: CPU path only";
  line.remedy = "install the CUDA toolkit and build again to run on a GPU";
  line.ok = false;
#endif
  return line;
}

DoctorLine describe_driver(const Nvml* nvml, const std::string& why_not) {
  if (!nvml)
    return {"driver", "none found (" + why_not + ")",
            "install the NVIDIA driver, or run with --device cpu", false};
  DoctorLine line{"driver", nvml->driver_version(), "", true};
#ifdef SAGE_WITH_CUDA
  line.state += ", runs CUDA up to " + cuda_driver_version();
#endif
  return line;
}

DoctorLine describe_gpu(const std::string& what, const std::string& name, int capability,
                        const std::string& more) {
  DoctorLine line{what, name + ", compute capability " + capability_text(capability) + more, "",
                  true};
#ifdef SAGE_WITH_CUDA
  const auto& archs = compiled_architectures();
  if (!archs.empty() && !covers(archs, capability)) {
    line.state += ", not covered by this build";
    line.remedy = "configure with -DCMAKE_CUDA_ARCHITECTURES=" +
                  (capability == 90 ? std::string("90a") : std::to_string(capability)) + "-real";
    line.ok = false;
  }
#endif
  return line;
}

#ifdef SAGE_WITH_CUDA
void add_gpus(const Nvml*, std::vector<DoctorLine>& lines) {
  const CudaProbe probe = probe_cuda();
  for (const CudaDevice& d : probe.devices)
    lines.push_back(describe_gpu("cuda:" + std::to_string(d.ordinal), d.name, d.compute_capability,
                                 ", " + std::to_string(d.memory_bytes >> 30) + " GiB, " +
                                     std::to_string(d.sm_count) + " SMs"));
  if (probe.devices.empty())
    lines.push_back({"GPU", "none usable: " + probe.problem,
                     "check nvidia-smi and CUDA_VISIBLE_DEVICES, or run with --device cpu", false});
}
#else
void add_gpus(const Nvml* nvml, std::vector<DoctorLine>& lines) {
  const std::vector<GpuIdentity> gpus = nvml ? nvml->gpus() : std::vector<GpuIdentity>();
  for (const GpuIdentity& gpu : gpus)
    lines.push_back(describe_gpu("GPU", gpu.name, gpu.compute_capability.value_or(0), ""));
  if (gpus.empty()) lines.push_back({"GPU", "none found", "run with --device cpu", false});
}
#endif

std::vector<DoctorLine> examine() {
  std::vector<DoctorLine> lines;
  const std::string cpu = cpu_name();
  lines.push_back({"CPU",
                   (cpu.empty() ? "unknown model" : cpu) + ", " +
                       std::to_string(std::thread::hardware_concurrency()) + " threads",
                   "", true});
  lines.push_back(describe_build());
  std::string why_not;
  const std::unique_ptr<Nvml> nvml = Nvml::open(&why_not);
  lines.push_back(describe_driver(nvml.get(), why_not));
  lines.push_back(
      nvml ? DoctorLine{"NVML", "found: clocks, power and temperature are recorded", "", true}
           : DoctorLine{"NVML", why_not + ": clocks and power will be null",
                        "comes with the NVIDIA driver", false});
  add_gpus(nvml.get(), lines);
  for (const ProgramRow& program : kPrograms) {
    const std::string file = find_program(program.name);
    lines.push_back({program.name, file.empty() ? "not found" : file,
                     file.empty() ? program.remedy : "", !file.empty()});
  }
  return lines;
}

}  // namespace

std::vector<DoctorLine> doctor() {
  try {
    return examine();
  } catch (const std::exception& error) {
    return {{"doctor", error.what(), "report this as a defect", false}};
  }
}

}  // namespace sagebench
