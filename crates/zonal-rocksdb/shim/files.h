// Open files of a drive, as RocksDB wants them. All work is done in Rust, behind zonal_kv.h.
#pragma once

#include <rocksdb/env.h>
#include <rocksdb/file_system.h>
#include <zonal_kv.h>
#include <zonal_reserve.h>

#include <memory>
#include <string>

namespace zonal {

namespace rocksdb = ROCKSDB_NAMESPACE;

// Offsets, lengths and memory of direct I/O are multiples of this: a block of Furrow.
constexpr size_t kAlignment = 4096;

inline zkv_text Text(const rocksdb::Slice& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// The IOStatus of an errno, with the sentence of the call that has just failed in this thread.
rocksdb::IOStatus Failed(int error);

inline rocksdb::IOStatus StatusOf(int error) {
  return error == 0 ? rocksdb::IOStatus::OK() : Failed(error);
}

struct CloseFile {
  void operator()(zkv_file* file) const { zkv_file_close(file); }
};
using FileHandle = std::unique_ptr<zkv_file, CloseFile>;

// Opens a file as `flags` of zonal_kv.h say.
rocksdb::IOStatus Open(zkv_store* store, const std::string& path, uint32_t flags, FileHandle* file);

std::unique_ptr<rocksdb::FSSequentialFile> SequentialFile(FileHandle file, bool direct);
std::unique_ptr<rocksdb::FSRandomAccessFile> RandomAccessFile(FileHandle file, bool direct);
// `path` tells whether it is a log or a table.
std::unique_ptr<rocksdb::FSWritableFile> WritableFile(FileHandle file, const std::string& path,
                                                      bool direct, uint64_t size,
                                                      std::shared_ptr<Reserve> reserve);
std::unique_ptr<rocksdb::FSRandomRWFile> RandomRWFile(FileHandle file, bool direct);
std::shared_ptr<rocksdb::Logger> Log(FileHandle file);

}  // namespace zonal
