//! A sync of the host fails, and the process ends: the page cache may then hold data that no medium
//! has.

use super::*;

/// Earlier writes are lost, and no sync of the host says so again. Data that the next process
/// flushes stays.
#[test]
fn process_after_failed_sync_relies_on_nothing_lost() {
    /// When the host fails: at a sync of the data, at the record of it, and when the next process
    /// opens the drive.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum When {
        Sync,
        Record,
        Open,
    }
    for when in [When::Sync, When::Record, When::Open] {
        let mut run = Run::new(3);
        let [kept, other] = [0, 1].map(ZoneId::new);
        run.drive.append(kept, &block(1)).unwrap();
        run.drive.flush().unwrap();
        run.drive.append(kept, &block(2)).unwrap();
        let host = run.host.clone();
        match when {
            When::Sync => host.lock().next_sync = Fate::Forgotten,
            When::Record => {
                host.lock().next_record = Fate::Forgotten;
            }
            When::Open => {}
        }
        if when == When::Open {
            host.lock().next_sync = Fate::Forgotten;
            assert!(open(&host, run.boot).is_err(), "the host says it once");
        } else {
            assert!(run.drive.flush().is_err(), "{when:?}");
        }
        run.restart(run.boot).unwrap();
        let zone = run.drive.zone(kept).unwrap();
        let (life, written) = (run.read_life(&zone), zone.written().unwrap().get());
        assert_eq!(life.blocks.len() as u64, written, "{when:?}");
        run.drive.append(kept, &block(7)).unwrap();
        run.drive.append(other, &block(8)).unwrap();
        run.drive.flush().unwrap();
        let now = run.drive.report_all().unwrap();
        let lives: Vec<_> = [kept, other].map(|id| run.read_life(&now[id.index()]).blocks).into();
        host.lock().cut(&mut ChaCha8Rng::seed_from_u64(4));
        run.restart(run.boot + 1).unwrap();
        let after = run.drive.report_all().unwrap();
        for (id, before) in [kept, other].into_iter().zip(lives) {
            let zone = &after[id.index()];
            assert_eq!(zone.written().unwrap().get(), before.len() as u64, "{when:?}: zone {id}");
            assert_eq!(run.read_life(zone).blocks, before, "{when:?}: zone {id}");
        }
    }
}
