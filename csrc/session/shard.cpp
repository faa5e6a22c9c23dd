#include "session/shard.h"

#include <cerrno>
#include <cstddef>
#include <cstring>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "session/crc32.h"

namespace pasta {
namespace {

constexpr char kMagic[8] = {'P', 'S', 'T', 'A', 'C', 'H', 'N', 'K'};
constexpr uint16_t kFormatVersion = 1;
constexpr uint8_t kTextColumn = 7;

struct ChunkHeader {
  char magic[8];
  uint16_t format_version;
  uint16_t schema_version;
  uint16_t table;
  uint16_t columns;
  uint32_t rows;
  uint32_t first_string;  // string chunks only
  uint64_t body_bytes;
  uint32_t body_crc;
  uint32_t header_crc;
};
static_assert(sizeof(ChunkHeader) == 40);
static_assert(offsetof(ChunkHeader, header_crc) == 36);

struct DirectoryEntry {
  uint16_t position;
  uint8_t type;
  uint8_t reserved;
  uint32_t offset;
};
static_assert(sizeof(DirectoryEntry) == 8);

struct ColumnBytes {
  uint16_t position;
  uint8_t type;
  const uint8_t* data;
  size_t bytes;
};

void encode_chunk(uint16_t table, uint32_t rows, uint32_t first_string, const std::vector<ColumnBytes>& columns,
                  std::vector<uint8_t>& out) {
  const size_t begin = out.size();
  out.resize(begin + sizeof(ChunkHeader));
  uint32_t offset = 0;
  for (const ColumnBytes& column : columns) {
    const DirectoryEntry entry{column.position, column.type, 0, offset};
    const auto* p = reinterpret_cast<const uint8_t*>(&entry);
    out.insert(out.end(), p, p + sizeof(entry));
    offset += static_cast<uint32_t>((column.bytes + 7) & ~size_t{7});
  }
  for (const ColumnBytes& column : columns) {
    out.insert(out.end(), column.data, column.data + column.bytes);
    out.resize(begin + ((out.size() - begin + 7) & ~size_t{7}));
  }
  const uint8_t* body = out.data() + begin + sizeof(ChunkHeader);
  const size_t body_bytes = out.size() - begin - sizeof(ChunkHeader);
  ChunkHeader header{};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.format_version = kFormatVersion;
  header.schema_version = kSchemaVersion;
  header.table = table;
  header.columns = static_cast<uint16_t>(columns.size());
  header.rows = rows;
  header.first_string = first_string;
  header.body_bytes = body_bytes;
  header.body_crc = crc32(body, body_bytes);
  header.header_crc = crc32(&header, offsetof(ChunkHeader, header_crc));
  std::memcpy(out.data() + begin, &header, sizeof(header));
}

}  // namespace

void ColumnBatch::append(const void* record) {
  const auto* bytes = static_cast<const uint8_t*>(record);
  for (uint16_t i = 0; i < table_.column_count; ++i) {
    const ColumnInfo& column = table_.columns[i];
    const uint8_t* field = bytes + column.offset;
    columns_[i].insert(columns_[i].end(), field, field + column_bytes(column.type));
  }
  ++rows_;
}

void ColumnBatch::encode(std::vector<uint8_t>& out) {
  std::vector<ColumnBytes> columns;
  columns.reserve(columns_.size());
  for (uint16_t i = 0; i < table_.column_count; ++i) {
    columns.push_back({i, static_cast<uint8_t>(table_.columns[i].type), columns_[i].data(), columns_[i].size()});
  }
  encode_chunk(table_.id, rows_, 0, columns, out);
  for (auto& column : columns_) column.clear();
  rows_ = 0;
}

void encode_strings(uint32_t first, const std::vector<std::string_view>& texts, std::vector<uint8_t>& out) {
  std::vector<uint32_t> ends;
  std::string joined;
  ends.reserve(texts.size());
  for (const std::string_view text : texts) {
    joined += text;
    ends.push_back(static_cast<uint32_t>(joined.size()));
  }
  encode_chunk(0, static_cast<uint32_t>(texts.size()), first,
               {{0, static_cast<uint8_t>(ColumnType::str), reinterpret_cast<const uint8_t*>(ends.data()),
                 ends.size() * sizeof(uint32_t)},
                {1, kTextColumn, reinterpret_cast<const uint8_t*>(joined.data()), joined.size()}},
               out);
}

ShardFile::~ShardFile() { abandon(); }

int ShardFile::adopt(int fd) {
  // Programs reuse low descriptors, and shells and daemons expect them free: stay out of their way.
  const int high = ::fcntl(fd, F_DUPFD_CLOEXEC, 500);
  if (high >= 0) {
    ::close(fd);
    fd = high;
  }
  struct stat status;
  if (::fstat(fd, &status) != 0) {
    const int error = errno;
    ::close(fd);
    return error;
  }
  ::flock(fd, LOCK_EX | LOCK_NB);
  fd_ = fd;
  device_ = status.st_dev;
  inode_ = status.st_ino;
  return 0;
}

void ShardFile::abandon() {
  if (fd_ >= 0 && still_ours()) ::close(fd_);
  fd_ = -1;
}

int ShardFile::create(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) return errno;
  path_ = path;
  return adopt(fd);
}

bool ShardFile::still_ours() const {
  struct stat status;
  return ::fstat(fd_, &status) == 0 && status.st_dev == device_ && status.st_ino == inode_;
}

int ShardFile::write(const std::vector<uint8_t>& bytes) {
  if (!still_ours()) {
    const int fd = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0) return errno;
    if (const int error = adopt(fd); error != 0) return error;
  }
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::write(fd_, bytes.data() + done, bytes.size() - done);
    if (n < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    done += static_cast<size_t>(n);
    bytes_written_ += n;
  }
  return 0;
}

}  // namespace pasta
