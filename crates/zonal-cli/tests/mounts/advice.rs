//! The advice that a mount gives about its use, and its limit of open zones.

use std::fs::File;
use std::io::Write;

use super::{Place, text, zonal};

/// More writes than a mount accepts without advice.
const WRITES: usize = 100_100;

#[test]
fn advice_suggests_writeback_for_many_small_writes() {
    let Some(place) = Place::mountable() else { return };
    for (options, is_said) in [("rw", true), ("writeback", false)] {
        place.mount(options);
        let mut file = File::create(place.dir().join("rows")).unwrap();
        assert!(place.stats().get("advice").is_none());
        for _ in 0..WRITES {
            file.write_all(b"row").unwrap();
        }
        drop(file);
        let advice = place.stats().get("advice").map(ToString::to_string).unwrap_or_default();
        assert_eq!(advice.contains("-o writeback would help"), is_said, "{options}: {advice}");
        let page = zonal(&["stats", text(&place.dir())]);
        assert_eq!(page.contains("\nadvice: -o writeback would help"), is_said, "{page}");
        place.umount();
        let log = place.log();
        assert_eq!(log.matches("-o writeback would help").count(), 1, "{options}: {log}");
        assert!(log.contains("/rows"), "{log}");
    }
}

#[test]
fn open_zone_limit_is_shown_as_enforced() {
    let Some(place) = Place::mountable() else { return };
    for (options, most, asked) in
        [("rw", 5, None), ("max_open_zones=2", 2, Some(2)), ("max_open_zones=99", 5, Some(99))]
    {
        place.mount(options);
        let mut file = File::create(place.dir().join("file")).unwrap();
        file.write_all(&[1; 10_000]).unwrap();
        file.sync_all().unwrap();
        drop(file);
        let stats = place.stats();
        assert_eq!(stats["open_zones_max"], most, "{options}");
        assert_eq!(stats.get("max_open_zones").and_then(serde_json::Value::as_u64), asked);
        let open = stats["open_zones"].as_u64().unwrap();
        assert!((1..=most).contains(&open), "{options}: {open}");
        let page = zonal(&["stats", text(&place.dir())]);
        assert!(page.contains(&format!(" of at most {most} for data\n")), "{page}");
        let info = zonal(&["info", text(&place.drive()), "--json"]);
        let info: serde_json::Value = serde_json::from_str(&info).unwrap();
        assert!(info["open_zones"].as_u64().unwrap() >= open, "metadata has some too: {info}");
        assert!(info["active_zones"].as_u64() >= info["open_zones"].as_u64(), "{info}");
        place.umount();
    }
}
