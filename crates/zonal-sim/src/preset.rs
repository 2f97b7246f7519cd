//! Configs that come with the simulator: drives to start from.

/// A config by name.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// The config, as in a file.
    pub text: &'static str,
}

impl Preset {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self { name: "conventional-7", text: include_str!("../configs/conventional-7.toml") },
        Self { name: "conventional-28", text: include_str!("../configs/conventional-28.toml") },
        Self { name: "physical-7", text: include_str!("../configs/physical-7.toml") },
        Self { name: "physical-28", text: include_str!("../configs/physical-28.toml") },
        Self { name: "zns", text: include_str!("../configs/zns.toml") },
        Self { name: "zn540", text: include_str!("../configs/zn540.toml") },
        Self { name: "sn540", text: include_str!("../configs/sn540.toml") },
        Self { name: "hc620", text: include_str!("../configs/hc620.toml") },
        Self { name: "hc680", text: include_str!("../configs/hc680.toml") },
        Self { name: "cmr14", text: include_str!("../configs/cmr14.toml") },
        Self { name: "fdp", text: include_str!("../configs/fdp.toml") },
        Self { name: "files", text: include_str!("../configs/files.toml") },
        Self { name: "small", text: include_str!("../configs/small.toml") },
    ];

    /// The one of this name.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|preset| preset.name == name)
    }

    /// Its description: the first line, a comment.
    pub fn about(self) -> &'static str {
        self.text.lines().next().unwrap_or_default().trim_start_matches("# ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn presets_parse_and_describe_themselves() {
        for preset in Preset::ALL {
            let config = Config::parse(preset.text).expect(preset.name);
            assert_eq!(config.name, preset.name);
            assert!(preset.text.starts_with("# "), "{}", preset.name);
            assert!(preset.about().len() > 20, "{}", preset.name);
        }
        assert!(Preset::find("zns").is_some() && Preset::find("zmr").is_none());
    }

    #[test]
    fn presets_of_7_and_28_percent_have_both_readings() {
        let op = |name: &str| {
            let preset = Preset::find(name).expect("a preset");
            Config::parse(preset.text).and_then(|config| config.layout()).expect(name).op_nominal()
        };
        // 2 TiB of flash below 1.92 and 1.60 TB: 14.5 and 37.4 %.
        assert!((op("conventional-7") - 0.145).abs() < 0.001, "{}", op("conventional-7"));
        assert!((op("conventional-28") - 0.374).abs() < 0.001, "{}", op("conventional-28"));
        assert!((op("physical-7") - 0.07).abs() < 0.0001, "{}", op("physical-7"));
        assert!((op("physical-28") - 0.28).abs() < 0.0001, "{}", op("physical-28"));
    }
}
