// Uses column families, several paths, recycled logs, ingested tables and checkpoints. It does so
// twice: the second time it finds all that the first time has left.
//
//   features URI
#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/file_system.h>
#include <rocksdb/sst_file_writer.h>
#include <rocksdb/utilities/checkpoint.h>

#include <memory>
#include <string>
#include <vector>

#include "must.h"

using namespace rocksdb;

namespace {

struct Open {
  std::unique_ptr<DB> db;
  std::vector<ColumnFamilyHandle*> families;

  Open(const DBOptions& options, const ColumnFamilyOptions& how, const std::string& path) {
    std::vector<ColumnFamilyDescriptor> names = {{kDefaultColumnFamilyName, how}, {"second", how}};
    db = OpenStore(options, path, names, &families);
  }
  ~Open() {
    for (ColumnFamilyHandle* family : families) db->DestroyColumnFamilyHandle(family);
    Must(db->Close(), "closing");
  }
  void Checkpoint(const std::string& path) {
    rocksdb::Checkpoint* made = nullptr;
    Must(rocksdb::Checkpoint::Create(db.get(), &made), "a checkpoint");
    const std::unique_ptr<rocksdb::Checkpoint> checkpoint(made);
    Must(checkpoint->CreateCheckpoint(path), "a checkpoint");
  }
};

// Puts enough for several tables and logs into both families.
void Fill(Open* open, int round) {
  for (int number = 0; number < 2000; ++number) {
    const std::string key = "key" + std::to_string(number);
    const std::string value(500, static_cast<char>('a' + (number + round) % 26));
    for (ColumnFamilyHandle* family : open->families) {
      Must(open->db->Put(WriteOptions(), family, key, value), "a put");
    }
  }
}

void Check(Open* open, int round) {
  for (ColumnFamilyHandle* family : open->families) {
    for (int number = 0; number < 2000; ++number) {
      std::string value;
      const std::string key = "key" + std::to_string(number);
      Must(open->db->Get(ReadOptions(), family, key, &value), "a get");
      Expect(value == std::string(500, static_cast<char>('a' + (number + round) % 26)), "a value");
    }
  }
}

// A table that is written beside the store, and moved or copied into it with a number of its own.
void Ingest(Open* open, const Options& options, const std::string& name, bool moves) {
  const std::string path = "/" + name + ".table";
  SstFileWriter writer(EnvOptions(), options);
  Must(writer.Open(path), "a table");
  Must(writer.Put("ingested-" + name, name), "a table's put");
  Must(writer.Finish(), "finishing a table");
  // Older than what is ingested, so that the table needs a number.
  Must(open->db->Put(WriteOptions(), "ingested-" + name, "old"), "a put");
  IngestExternalFileOptions how;
  how.move_files = moves;
  how.write_global_seqno = true;
  Must(open->db->IngestExternalFile({path}, how), "ingesting");
  std::string value;
  Must(open->db->Get(ReadOptions(), "ingested-" + name, &value), "what was ingested");
  Expect(value == name, "the ingested value");
  if (!moves) Must(options.env->DeleteFile(path), "removing a table");
}

void Use(const Options& options, const std::string& path, int round) {
  Open open(options, options, path);
  if (round > 0) Check(&open, round - 1);
  Fill(&open, round);
  Check(&open, round);
  Ingest(&open, options, "copied" + std::to_string(round), false);
  Ingest(&open, options, "moved" + std::to_string(round), true);
  Must(open.db->CompactRange(CompactRangeOptions(), nullptr, nullptr), "compacting");
  Must(open.db->VerifyChecksum(), "checksums");
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) return 2;
  std::shared_ptr<FileSystem> files;
  Must(FileSystem::CreateFromString(ConfigOptions(), arguments[1], &files), "the address");
  const std::unique_ptr<Env> env = NewCompositeEnv(files);
  Options options;
  options.env = env.get();
  options.create_if_missing = true;
  options.create_missing_column_families = true;
  options.paranoid_checks = true;
  options.recycle_log_file_num = 2;
  options.bytes_per_sync = 64 << 10;
  options.wal_bytes_per_sync = 64 << 10;
  options.use_direct_io_for_flush_and_compaction = true;
  options.write_buffer_size = 256 << 10;
  options.target_file_size_base = 256 << 10;
  Must(env->CreateDirIfMissing("/deep"), "a directory");
  Must(env->CreateDirIfMissing("/deep/er"), "a directory");
  // The first path is soon full.
  options.db_paths = {{"/deep/er/fast", 300 << 10}, {"/deep/er/slow", 1 << 30}};
  for (int round = 0; round < 2; ++round) Use(options, "/deep/store", round);
  // RocksDB takes no checkpoint of a store with several paths.
  options.db_paths.clear();
  for (int round = 0; round < 2; ++round) Use(options, "/plain", round);
  Open(options, options, "/plain").Checkpoint("/copy");
  Open copy(options, options, "/copy");
  Check(&copy, 1);
  return 0;
}
