//! Sets single fields of a config by their path, as in `drive.op=0.28`, for `--set` and sweeps.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::Config;
use crate::error::{Result, SimError};

/// A field and its new value, as text.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Setting {
    /// The path of the field, as in `drive.op`.
    pub path: String,
    /// The value, as in a config; quotes around words may be left out.
    pub value: String,
}

impl TryFrom<String> for Setting {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Self, String> {
        text.parse()
    }
}

impl std::str::FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (path, value) =
            text.split_once('=').ok_or_else(|| format!("{text:?} is not PATH=VALUE"))?;
        Ok(Self { path: path.trim().to_owned(), value: value.trim().to_owned() })
    }
}

impl Config {
    /// Reads a config, changes fields of it, and refuses an impossible result. Fields that are only
    /// possible together can be set together.
    pub fn parse_with(text: &str, settings: &[Setting]) -> Result<Self> {
        let mut config = Self::parse_unchecked(text)?;
        for setting in settings {
            config = config.set(setting)?;
        }
        config.check()?;
        Ok(config)
    }

    /// The same config with one field changed; not yet checked.
    pub fn set(&self, setting: &Setting) -> Result<Self> {
        let table = Table::try_from(self).expect("every field has a form in TOML");
        Ok(setting.apply::<Self>(&table)?.1)
    }
}

impl Setting {
    /// Applies the setting: the changed table, and the value parsed from it.
    pub(crate) fn apply<T: DeserializeOwned>(&self, table: &Table) -> Result<(Table, T)> {
        let wrong = |what: &str| SimError::Config {
            what: format!("{} = {} is not possible: {what}", self.path, self.value),
        };
        // A number, a word in quotes, a list; or a word without quotes.
        let read = format!("value = {}", self.value).parse::<Table>();
        let read = read.ok().and_then(|mut table| table.remove("value"));
        let word = Value::String(self.value.clone());
        let mut errors = Vec::new();
        for value in read.into_iter().chain([word]) {
            let mut changed = table.clone();
            put(&mut changed, &self.path, value).map_err(|what| wrong(&what))?;
            match changed.clone().try_into::<T>() {
                Ok(read) => return Ok((changed, read)),
                Err(error) => errors.push(error),
            }
        }
        // The error of the value as it was written, not of the same text as a word.
        Err(wrong(errors[0].message().trim()))
    }
}

/// Puts a value at a path of sections and a field.
fn put(table: &mut Table, path: &str, value: Value) -> std::result::Result<(), String> {
    let Some((section, rest)) = path.split_once('.') else {
        if table.get(path).is_some_and(Value::is_table) {
            return Err(format!("{path} is a section: name a field of it, as in {path}.NAME"));
        }
        table.insert(path.to_owned(), value);
        return Ok(());
    };
    let inner = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
    let inner = inner.as_table_mut().ok_or_else(|| format!("{section} is not a section"))?;
    put(inner, rest, value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Kind, Victim};
    use crate::size::Size;

    fn set(text: &str) -> Result<Config> {
        Config::parse_with("", &[text.parse().expect("a setting")])
    }

    #[test]
    fn settings_set_fields_by_path() {
        assert!((set("drive.op=0.28").expect("set").drive.op - 0.28).abs() < f64::EPSILON);
        assert!((set("drive.op = 1").expect("an integer is a number").drive.op - 1.0).abs() < 1e-9);
        assert_eq!(
            set("drive.user=1.92TB").expect("set").drive.user,
            Some(Size(1_920 * 1_000_000_000))
        );
        assert_eq!(set("gc.victim=d-choices:5").expect("set").gc.victim, Victim::Choices(5));
        assert_eq!(set("drive.kind=\"zns\"").expect("quoted").drive.kind, Kind::Zns);
        assert_eq!(set("name=5").expect("a word").name, "5");
        assert_eq!(set("seed=5").expect("a number").seed, 5);
    }

    #[test]
    fn settings_for_no_field_are_refused() {
        for (text, said) in [
            ("drive.opp=1", "drive.opp = 1 is not possible: unknown field `opp`"),
            ("drives.op=1", "unknown field `drives`"),
            ("seed.op=1", "seed is not a section"),
            ("drive=1", "drive is a section"),
            ("drive.op=x", "drive.op = x is not possible: invalid type"),
            ("drive.op=-1", "drive.op = -1 is not possible: from 0 to 100"),
            ("gc.victim=best", "greedy, cost-benefit"),
            ("sead=1", "unknown field `sead`"),
        ] {
            let error = set(text).expect_err(text).to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
        assert!("drive.op".parse::<Setting>().is_err());
    }

    #[test]
    fn settings_that_need_each_other_apply_together() {
        let settings =
            ["run.warm_up=8", "run.drive_writes=9"].map(|text| text.parse().expect("one"));
        assert!(Config::parse_with("", &settings[..1]).is_err());
        assert!(Config::parse_with("", &settings).is_ok());
    }
}
