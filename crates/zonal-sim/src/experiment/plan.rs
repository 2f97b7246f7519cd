//! The config file of an experiment: drives to compare, measurements, published values.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::Name;
use crate::config::{Config, Setting};
use crate::error::{Result, SimError};
use crate::report::page::{Basis, Claim, Deviation, Origin, PublishedChart};
use crate::report::zbdbench::{self, Results};
use crate::report::{Form, Series};

/// The content of the file. `M` is the section `measure` of this kind of experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Plan<M> {
    /// Which experiment.
    pub(super) experiment: String,
    /// The question it answers.
    pub(super) title: String,
    /// Paragraphs that explain it.
    #[serde(default)]
    pub(super) text: Vec<String>,
    /// The seed of everything random.
    #[serde(default)]
    pub(super) seed: u64,
    /// The flash gets so many programs in an erase block: a smaller drive of the same speed.
    #[serde(default)]
    programs_per_block: Option<u32>,
    /// The config that all drives share.
    #[serde(default)]
    base: Config,
    /// The drives.
    pub(super) drives: Vec<Variant>,
    /// The measurements.
    pub(super) measure: M,
    /// Published charts whose values are compared with ours.
    #[serde(default)]
    charts: Vec<ChartPlan>,
    /// Published points for the picture.
    #[serde(default)]
    marks: Vec<ReferencePoints>,
    /// Results of real drives for the picture.
    #[serde(default)]
    overlays: Vec<ReferencePoints>,
    /// Changes that `--quick` makes.
    #[serde(default)]
    quick: Vec<Setting>,
    /// The whole file after all changes.
    #[serde(skip)]
    pub(super) effective: String,
}

/// A drive, and the workload on it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Variant {
    /// Its name.
    pub(super) name: String,
    /// Its differences from `base`.
    #[serde(default)]
    pub(super) set: Vec<Setting>,
}

/// A published chart: values that were published together, in one unit.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChartPlan {
    title: String,
    /// Where it was published.
    document: String,
    #[serde(default)]
    url: Option<String>,
    claims: Vec<ClaimPlan>,
}

/// A published value, and the one of ours that is compared with it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimPlan {
    what: String,
    published: String,
    value: f64,
    unit: String,
    /// Name of our value.
    of: String,
    /// Name of the value it is compared with.
    #[serde(default)]
    over: Option<String>,
    /// How it is compared.
    #[serde(default)]
    form: Comparison,
    basis: Basis,
    /// Where in the document it is.
    place: String,
    /// How the value was taken from there.
    origin: Origin,
    #[serde(default)]
    note: String,
}

impl ClaimPlan {
    fn claim(&self, of: f64, over: f64) -> Claim {
        let ours = match self.form {
            Comparison::Ratio => of / over,
            Comparison::PercentLess => 100.0 * (1.0 - of / over),
        };
        Claim {
            what: self.what.clone(),
            published: self.published.clone(),
            value: self.value,
            ours,
            unit: self.unit.clone(),
            error: Deviation::new(self.value, ours, &self.unit),
            basis: self.basis,
            place: self.place.clone(),
            origin: self.origin,
            note: self.note.clone(),
        }
    }
}

/// How a value is computed from two.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Comparison {
    /// `of`, or `of` ÷ `over`.
    #[default]
    Ratio,
    /// By how many percent `of` is less than `over`.
    PercentLess,
}

/// Points of other sources.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReferencePoints {
    name: String,
    points: Vec<(f64, f64)>,
}

/// How much of an experiment is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// As its config says.
    #[default]
    Full,
    /// With the changes that its config lists under `quick`.
    Quick,
}

/// Changes to an experiment's config.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// The seed, instead of the config's.
    pub seed: Option<u64>,
    /// How much of it is run.
    pub scope: Scope,
    /// Single fields, as in `base.drive.unit=4KiB`.
    pub settings: Vec<Setting>,
    /// Results of real drives. Each is for one of the experiments; the others leave it out.
    pub overlays: Vec<Overlay>,
}

/// Results of a real drive, to be laid over ours in the picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Overlay {
    /// Its name in the legend.
    name: String,
    /// The experiment whose picture it belongs to.
    pub of: Name,
    points: Vec<(f64, f64)>,
}

impl Overlay {
    /// From a file of zbdbench: its text, or why it cannot be read.
    pub fn from_zbdbench(name: &str, text: &str) -> std::result::Result<Self, String> {
        let (of, points) = match zbdbench::read(text)? {
            Results::Written(points) => (Name::Throughput, points),
            Results::Mixed(points) => (Name::Latency, points),
        };
        Ok(Self { name: name.to_owned(), of, points })
    }
}

/// Results by name, in the order in which they came about.
#[derive(Clone, Debug, Default)]
pub(super) struct Values(Vec<(String, f64)>);

impl Values {
    pub(super) fn add(&mut self, name: String, value: f64) {
        self.0.push((name, value));
    }

    fn get(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }
}

/// The published charts beside ours.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    /// With the claims whose values were measured.
    pub(super) charts: Vec<PublishedChart>,
    /// The claims whose values were not measured.
    pub(super) left_out: Vec<String>,
}

impl<M: DeserializeOwned> Plan<M> {
    /// Reads the file and makes the changes.
    pub(super) fn parse(text: &str, changes: &Changes) -> Result<Self> {
        let wrong = |error: toml::de::Error| SimError::Config { what: error.to_string() };
        let mut plan: Self = toml::from_str(text).map_err(wrong)?;
        let mut table: Table = toml::from_str(text).map_err(wrong)?;
        let own = |overlay: &&Overlay| overlay.of.word() == plan.experiment;
        for overlay in changes.overlays.iter().filter(own).cloned() {
            plan.overlays.push(ReferencePoints { name: overlay.name, points: overlay.points });
        }
        if !plan.overlays.is_empty() {
            let overlays = Value::try_from(&plan.overlays).expect("names and numbers are TOML");
            table.insert("overlays".into(), overlays);
        }
        let quick = match changes.scope {
            Scope::Full => Vec::new(),
            Scope::Quick => plan.quick.clone(),
        };
        let seed =
            changes.seed.map(|seed| Setting { path: "seed".into(), value: seed.to_string() });
        for setting in quick.iter().chain(&changes.settings).chain(&seed) {
            (table, plan) = setting.apply(&table)?;
        }
        plan.effective = toml::to_string(&table).expect("it was TOML");
        if plan.drives.is_empty() {
            return Err(SimError::Config { what: "drives: there is none to measure".into() });
        }
        Ok(plan)
    }
}

impl<M> Plan<M> {
    /// The config of a drive, with changes that this experiment makes.
    pub(super) fn config(&self, variant: &Variant, more: &[(&str, String)]) -> Result<Config> {
        let mut config = self.base.clone();
        let more = more
            .iter()
            .map(|(path, value)| Setting { path: (*path).to_owned(), value: value.clone() });
        for setting in variant.set.iter().cloned().chain(more) {
            config = config.set(&setting)?;
        }
        if let Some(programs) = self.programs_per_block {
            config.flash = config.flash.shrunk(programs);
        }
        config.name.clone_from(&variant.name);
        config.seed = self.seed;
        config.check()?;
        Ok(config)
    }

    /// How many times larger the full drive is than its simulated copy.
    pub(super) fn scale(&self, config: &Config) -> f64 {
        let flash = &self.base.flash;
        f64::from(flash.programs_per_block) / f64::from(config.flash.programs_per_block)
    }

    /// The published charts, with our values.
    pub(super) fn held(&self, values: &Values) -> Held {
        let mut held = Held::default();
        for chart in &self.charts {
            let mut claims = Vec::new();
            for plan in &chart.claims {
                let over = plan.over.as_deref().map_or(Some(1.0), |name| values.get(name));
                match (values.get(&plan.of), over) {
                    (Some(of), Some(over)) => claims.push(plan.claim(of, over)),
                    _ => held.left_out.push(format!("{}: {}", chart.title, plan.what)),
                }
            }
            held.charts.push(PublishedChart {
                title: chart.title.clone(),
                document: chart.document.clone(),
                url: chart.url.clone(),
                claims,
            });
        }
        held.charts.retain(|chart| !chart.claims.is_empty());
        held
    }

    /// Results of real drives as series.
    pub(super) fn overlays(&self) -> impl Iterator<Item = Series> {
        (self.drives.len()..).zip(&self.overlays).map(|(colour, mark)| {
            Series::new(&mark.name, Form::Dashed, colour, mark.points.clone())
        })
    }

    /// The published points as series.
    pub(super) fn published(&self) -> impl Iterator<Item = Series> {
        let series = |mark: &ReferencePoints| {
            Series::new(&mark.name, Form::Published, 0, mark.points.clone())
        };
        self.marks.iter().map(series)
    }
}
