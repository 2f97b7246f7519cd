//! Reads of a store by way of its cache, on Furrow and on zonefs.
#![allow(clippy::unwrap_used, reason = "this is test code")]

use std::path::Path;
use std::sync::Arc;

use zonal_fs::volume::OpenFlags;
use zonal_kv::{Store, StoreFile};

const NEW: OpenFlags = OpenFlags::WRITE.union(OpenFlags::CREATE).union(OpenFlags::TRUNCATE);

fn write(store: &Arc<Store>, flags: OpenFlags, data: &[u8]) {
    let file = StoreFile::open(store, Path::new("/table"), flags).unwrap();
    file.append(data).unwrap();
    file.close().unwrap();
}

fn read(file: &StoreFile, offset: u64, len: usize) -> Vec<u8> {
    let mut buffer = vec![0; len];
    let count = file.read(&mut buffer, offset).unwrap();
    buffer.truncate(count);
    buffer
}

fn check(uri: &str) {
    let store = Store::open(uri).unwrap();
    let table: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    write(&store, NEW, &table);
    let file = StoreFile::open(&store, Path::new("/table"), OpenFlags::READ).unwrap();
    assert_eq!(read(&file, 0, 2_000_000), table, "{uri}");
    let lent = file.lend(5000, 4096).unwrap();
    assert_eq!(lent, (!uri.ends_with("cache=0")).then_some(&table[5000..9096]), "{uri}");
    assert_eq!(read(&file, table.len() as u64 - 3, 10), table[table.len() - 3..]);

    write(&store, OpenFlags::WRITE, b"more");
    assert_eq!(
        read(&file, table.len() as u64 - 3, 10),
        [&table[table.len() - 3..], b"more"].concat()
    );
    write(&store, NEW, b"other");
    let new = StoreFile::open(&store, Path::new("/table"), OpenFlags::READ).unwrap();
    assert_eq!(read(&new, 0, 10), b"other");
    store.remove_file(Path::new("/table")).unwrap();
    write(&store, NEW, b"third");
    let third = StoreFile::open(&store, Path::new("/table"), OpenFlags::READ).unwrap();
    assert_eq!((read(&third, 0, 10), read(&new, 0, 10)), (b"third".to_vec(), b"other".to_vec()));
}

#[test]
fn store_reads_see_every_finished_write() {
    check("zonal://mem:zone=4M,zones=64?format=1");
    check("zonal://mem:zone=4M,zones=32?format=zonefs&cache=4M");
    check("zonal://po2:mem:zone=4M,zones=64?format=1&cache=0");
}
