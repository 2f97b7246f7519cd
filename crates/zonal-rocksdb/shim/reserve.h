// A reserve of space, so that a store that has filled its drive goes on and opens again: RocksDB
// first turns its logs into tables, and writes a manifest.
#pragma once

#include <zonal_kv.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace zonal {

// The space that a writer may use.
enum class Use { kAll, kNotReserve };

// How much of the reserve is kept.
enum class Kept { kAll, kHalf };

class Reserve {
 public:
  explicit Reserve(zkv_store* store) : store_(store) { zkv_unit(store, &unit_); }

  // The bytes of a log that may have to become tables: its writer keeps them up to date.
  std::shared_ptr<std::atomic<uint64_t>> Log(const std::string& path) {
    const std::lock_guard<std::mutex> turn(mutex_);
    std::shared_ptr<std::atomic<uint64_t>>& log = logs_[path];
    if (!log) log = std::make_shared<std::atomic<uint64_t>>(0);
    return log;
  }
  // It is gone, or kept for other reasons.
  void RemoveLog(const std::string& path) {
    const std::lock_guard<std::mutex> turn(mutex_);
    logs_.erase(path);
  }

  // Bytes that are free beyond the reserve, or half of it; an errno if the drive does not say.
  int Free(Kept part, uint64_t* bytes) const {
    uint64_t free = 0;
    const int error = zkv_free_bytes(store_, &free);
    const uint64_t kept = part == Kept::kAll ? Size() : Size() / 2;
    *bytes = free > kept ? free - kept : 0;
    return error;
  }

 private:
  // Manifest, options and other small files.
  static constexpr uint64_t kSmallFiles = 4;
  static constexpr uint64_t kSmallBytes = 1 << 20;

  uint64_t Size() const {
    const std::lock_guard<std::mutex> turn(mutex_);
    uint64_t size = kSmallFiles * unit_ + kSmallBytes;
    // The tables of a log fill their last units in part.
    for (const auto& log : logs_) size += (*log.second / unit_ + 2) * unit_;
    return size;
  }

  zkv_store* const store_;
  // A file takes at least so much.
  uint64_t unit_ = 4096;
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<std::atomic<uint64_t>>> logs_;
};

// Whether a path is that of a log from which a store is recovered, by its name as RocksDB gives it.
inline bool IsLog(const std::string& path) {
  const size_t at = path.size() < 4 ? std::string::npos : path.rfind(".log");
  return at == path.size() - 4 && path.find("/archive/") == std::string::npos;
}

}  // namespace zonal
