//! Folders with planted mistakes.

use std::path::Path;

use tempfile::TempDir;

use super::*;

const FACE_TEXT: &str = "//! A house.\n//!\n//! | room | what it is | may use |\n//! | --- | --- | --- |\n\
    //! | `cellar`, `shed` | below | |\n//! | [`mod@hall`] | in the middle | `cellar` |\n\
    //! | `attic` | above | all above |\n//!\n//! More.\n\n\
    mod attic;\nmod cellar;\nmod hall;\nmod shed;\n#[cfg(test)]\nmod tests;\n\n\
    pub use self::attic::Box;\n\npub struct House;\n";

/// A house whose rooms all keep to the table.
const HOUSE: &[(&str, &str)] = &[
    ("mod.rs", FACE_TEXT),
    (
        "cellar.rs",
        "use super::House;\npub struct Coal;\n#[cfg(test)]\nmod tests { use crate::house::attic; }\n",
    ),
    ("shed.rs", "use std::io;\n"),
    ("hall/mod.rs", "mod stairs;\nuse super::cellar::Coal;\npub struct Carpet;\n"),
    ("hall/stairs.rs", "use super::Carpet;\nuse super::super::cellar;\n"),
    ("attic.rs", "pub struct Box(super::hall::Carpet, super::shed::Spade);\n"),
    ("tests.rs", "use super::attic::Box;\n"),
];

/// The errors in the house if these files are changed: `path:line: what`.
fn wrong_with(changes: &[(&str, &str)]) -> Vec<String> {
    let place = TempDir::new().unwrap();
    let folder = place.path().join("crates/x/src/house");
    for (name, text) in HOUSE.iter().chain(changes) {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let face = folder.join("mod.rs");
    let rows = table(&std::fs::read_to_string(&face).unwrap()).unwrap();
    let wrong = Folder::read(&face).unwrap().compare(&rows);
    wrong.iter().map(|what| what.message(&folder, "the house")).collect()
}

#[test]
fn house_that_keeps_to_its_table_passes() {
    assert_eq!(wrong_with(&[]), [""; 0]);
}

#[test]
fn planted_use_of_a_higher_room_fails_with_place_and_rule() {
    let wrong = wrong_with(&[("cellar.rs", "//! Coal.\n\nuse super::hall::Carpet;\n")]);
    let expected = "cellar.rs:3: room `cellar` uses `hall` (hall::Carpet) and may use nothing, \
        says the table of the house";
    assert_eq!(wrong, [expected]);
    for text in [
        "use super::{House, hall};",
        "use crate::house::hall;",
        "fn f(x: &super::hall::Carpet) {}",
        "fn f() { assert!(super::hall::is_clean()); }",
        "mod a { pub use super::super::hall::*; }",
        "#[cfg(feature = \"testing\")]\nuse super::hall;",
    ] {
        let wrong = wrong_with(&[("cellar.rs", text)]);
        assert!(wrong.len() == 1 && wrong[0].contains("`cellar` uses `hall`"), "{text}: {wrong:?}");
    }
}

#[test]
fn room_deep_in_a_folder_counts_as_the_folder() {
    let wrong = wrong_with(&[("hall/stairs.rs", "use super::super::attic::Box;")]);
    assert!(wrong.len() == 1 && wrong[0].starts_with("hall/stairs.rs:1: room `hall` uses `attic`"));
}

#[test]
fn neighbours_in_one_row_may_not_use_each_other() {
    assert_eq!(wrong_with(&[("shed.rs", "use super::cellar::Coal;")]).len(), 1);
}

#[test]
fn name_that_the_face_exports_counts_as_the_room_it_comes_from() {
    let wrong = wrong_with(&[("hall/mod.rs", "mod stairs;\nuse super::{Box, House};")]);
    assert!(wrong.len() == 1 && wrong[0].contains("`hall` uses `attic` (Box)"), "{wrong:?}");
}

#[test]
fn name_that_the_face_has_from_outside_is_free() {
    let row = "//! | `mod.rs` | the door | all above |\n//!\n//! More.";
    let face = FACE_TEXT.replace("//!\n//! More.", row) + "pub use super::street::lamp;\n";
    let cellar = ("cellar.rs", "use super::lamp::Light;\npub struct Coal;\n");
    assert_eq!(wrong_with(&[("mod.rs", &face), cellar]), [""; 0]);
}

#[test]
fn glob_of_the_whole_folder_fails() {
    let wrong = wrong_with(&[("shed.rs", "use super::*;")]);
    assert!(wrong.len() == 1 && wrong[0].contains("`shed` may not take the whole folder"));
}

#[test]
fn table_and_modules_must_name_the_same_rooms() {
    let face = FACE_TEXT.replace("`cellar`, `shed`", "`cellar`, `stable`");
    let wrong = wrong_with(&[("mod.rs", &face)]);
    let expected = [
        "the house: the table names the room `stable`, which does not exist",
        "the house: the table has no row for `shed`",
    ];
    assert_eq!(wrong, expected);
    let face = FACE_TEXT.replace("| `cellar` |", "| `celar` |");
    let wrong = wrong_with(&[("mod.rs", &face)]);
    assert!(wrong[0].contains("`celar`, which does not exist"), "{wrong:?}");
}

#[test]
fn row_for_the_face_is_a_rule_too() {
    let row = "//! | `mod.rs` | the door | `hall` |\n//!\n//! More.";
    let face = FACE_TEXT.replace("//!\n//! More.", row).replace("self::attic", "attic");
    let wrong = wrong_with(&[("mod.rs", &face)]);
    let expected = [
        "`mod.rs` uses `attic` (attic::Box) and may use `hall`",
        "`cellar` uses `mod.rs` (House) and may use nothing",
    ];
    let is_told = |what| wrong.iter().any(|line: &String| line.contains(what));
    assert!(wrong.len() == 2 && expected.into_iter().all(is_told), "{wrong:?}");
}

#[test]
fn file_of_no_module_fails() {
    let wrong = wrong_with(&[("hall/lost.rs", "")]);
    assert!(wrong.len() == 1 && wrong[0].ends_with("hall/lost.rs belongs to no module"));
}

#[test]
fn file_without_a_table_has_no_floors() {
    assert_eq!(table("//! A module.\n\nmod a;\n"), None);
    assert_eq!(table(&FACE_TEXT.replace("may use", "uses")), None);
    assert_eq!(table("//! ```text\n//! | room | what it is | may use |\n//! ```\n"), None);
}

/// A workspace with the house in one folder, `face` in place of its `mod.rs`.
fn workspace(folder: &str, face: &str) -> (TempDir, impl Fn(&str, &str)) {
    let place = TempDir::new().unwrap();
    let git =
        std::process::Command::new("git").args(["init", "--quiet"]).arg(place.path()).status();
    assert!(git.unwrap().success());
    let root = place.path().join(folder);
    let house = move |name: &str, text: &str| {
        let path: &Path = &root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    for (name, text) in HOUSE {
        house(if *name == "mod.rs" { face } else { name }, text);
    }
    check(place.path()).unwrap();
    (place, house)
}

#[test]
fn crate_is_a_folder_too() {
    for face in ["lib.rs", "main.rs"] {
        let (place, house) = workspace("crates/x/src", face);
        house("hall/mod.rs", "mod stairs;\nuse crate::{Box, House, cellar::Coal};\n");
        let error = check(place.path()).unwrap_err().to_string();
        let expected = format!(
            "crates/x/src/hall/mod.rs:2: room `hall` uses `attic` (Box) and may use `cellar`, \
             says the table of crates/x/src/{face}"
        );
        assert_eq!(error, expected);
    }
}

#[test]
fn check_names_files_from_the_root_of_the_workspace() {
    let (place, house) = workspace("crates/x/src/house", "mod.rs");
    house("shed.rs", "use super::attic::Box;\n");
    let error = check(place.path()).unwrap_err().to_string();
    let expected = "crates/x/src/house/shed.rs:1: room `shed` uses `attic` (attic::Box) and may use \
        nothing, says the table of crates/x/src/house/mod.rs";
    assert_eq!(error, expected);
}
