//! The zone report as text: one line for each zone, all lines of the same length.

use zonal::Zone;

/// Names of the columns, as long as a line.
pub const HEAD: &str = "zone     condition            start       size   capacity    written";

/// A zone as a line of text. Start, size, capacity and written length are in blocks. An asterisk
/// follows the condition of a zone that was written elsewhere than at its write pointer.
pub fn line(zone: &Zone) -> String {
    let written = zone.written().map_or_else(|| "-".to_owned(), |written| written.to_string());
    format!(
        "{:<8} {:<14}{:>12} {:>10} {:>10} {:>10}",
        zone.id.get(),
        zone.cond.name().to_owned() + if zone.non_sequential { "*" } else { "" },
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
        for (cond, non_sequential) in
            ZoneCond::ALL.into_iter().zip([false, true].into_iter().cycle())
        {
            let zone = Zone {
                id: ZoneId::new(55_879),
                kind: ZoneKind::SequentialRequired,
                cond,
                start: Lba::new(55_879 << 19),
                size: LbaCount::new(1 << 19),
                capacity: LbaCount::new(1 << 19),
                wp: Some(Lba::new((55_879 << 19) + 8)),
                non_sequential,
            };
            assert_eq!(line(&zone).len(), HEAD.len(), "{}", line(&zone));
        }
    }
}
