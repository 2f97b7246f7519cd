//! The zone report as text: one line for each zone, all lines of the same length.

use zonal::Zone;

/// Names of the columns, as long as a line.
pub const HEAD: &str = "zone     condition            start       size   capacity    written";

/// A zone as a line of text. Start, size, capacity and what is written are in blocks.
pub fn line(zone: &Zone) -> String {
    let written = zone.written().map_or_else(|| "-".to_owned(), |written| written.to_string());
    format!(
        "{:<8} {:<13} {:>12} {:>10} {:>10} {:>10}",
        zone.id.get(),
        zone.cond.name(),
        zone.start.get(),
        zone.size.get(),
        zone.capacity.get(),
        written
    )
}

#[cfg(test)]
mod tests {
    use zonal::{Lba, LbaCount, ZoneCond, ZoneId, ZoneKind};

    use super::*;

    #[test]
    fn zone_report_lines_equal_head_in_length() {
        for cond in ZoneCond::ALL {
            let zone = Zone {
                id: ZoneId::new(55_879),
                kind: ZoneKind::SequentialRequired,
                cond,
                start: Lba::new(55_879 << 19),
                size: LbaCount::new(1 << 19),
                capacity: LbaCount::new(1 << 19),
                wp: Some(Lba::new((55_879 << 19) + 8)),
            };
            assert_eq!(line(&zone).len(), HEAD.len(), "{}", line(&zone));
        }
    }
}
