//! Sizes as people write them in a config: `4096`, `"16KiB"`, `"1.92TB"`.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use zonal::size::{self, SizeError};

/// A number of bytes, in a config. [`zonal::size`] has the grammar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("unit" = "bytes")))]
pub struct Size(#[cfg_attr(feature = "schema", schemars(with = "String"))] pub u64);

impl Size {
    /// The number of bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl std::str::FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        size::parse(text).map(|bytes| Self(bytes.get()))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&size::exact(self.0))
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(u64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Number(bytes) => Ok(Self(bytes)),
            Written::Text(text) => text.parse().map_err(de::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_in_config_is_number_or_text() {
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct Config {
            size: Size,
        }
        for (text, bytes) in
            [("4096", 4096), ("\"1.92TB\"", 1_920_000_000_000), ("\"16K\"", 1 << 14)]
        {
            let config: Config = toml::from_str(&format!("size = {text}")).expect(text);
            assert_eq!(config, Config { size: Size(bytes) });
            let written = toml::to_string(&config).expect("a config");
            assert_eq!(toml::from_str::<Config>(&written), Ok(config), "{written}");
        }
        let error = toml::from_str::<Config>("size = \"16XB\"").unwrap_err().to_string();
        assert!(error.contains("\"16XB\" is not a size"), "{error}");
    }
}
