//! Simulations: one config, or an experiment of many, in a thread of its own, so that Python can
//! watch it and interrupt it. Results are JSON, which the package turns into dicts and lists.

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

use pyo3::prelude::*;
use rustix::io::Errno;
use serde_json::{Value, json};
use zonal_sim::config::{Mode, Setting};
use zonal_sim::experiment::{self, Changes, Experiment, Name, Scope};
use zonal_sim::preset::Preset;
use zonal_sim::{Config, Progress, SimError, counting, timed};

use crate::edge::{Failure, Outcome, from_bool};

/// How often a simulation looks whether Python was interrupted.
const LOOK: Duration = Duration::from_millis(100);

/// How a config is written.
#[derive(Clone, Copy)]
pub(crate) enum Form {
    Json,
    Toml,
}

from_bool!(Form, Json, Toml);

/// How much of an experiment is run.
#[derive(Clone, Copy)]
pub(crate) enum Length {
    Quick,
    Full,
}

from_bool!(Length, Quick, Full);

/// How an experiment is run: a dict with these keys.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct How {
    settings: Vec<(String, String)>,
    quick: Length,
    seed: Option<u64>,
    threads: Option<NonZeroUsize>,
}

/// A message of the thread of a simulation.
enum Said {
    Progress(Progress),
    Done(Result<Value, SimError>),
    Panicked(Failure),
}

/// The thread's side.
struct Watched {
    say: Sender<Said>,
    is_stopped: Arc<AtomicBool>,
}

/// The payload with which a simulation unwinds when it is not wanted any more.
struct Stopped;

impl Watched {
    /// Reports the progress, and ends the simulation here if the caller no longer waits for it. The
    /// simulator has no other way to end a run early. No panic is printed.
    fn tell(&self, progress: Progress) {
        let gone = self.say.send(Said::Progress(progress)).is_err();
        if gone || self.is_stopped.load(Ordering::Acquire) {
            resume_unwind(Box::new(Stopped));
        }
    }
}

/// Names and first lines.
type Listed = Vec<(&'static str, &'static str)>;

/// Names and first lines of the configs that come with the simulator: of drives, and of
/// experiments.
#[pyfunction]
pub(crate) fn configs() -> (Listed, Listed) {
    let drives = Preset::ALL.map(|preset| (preset.name, preset.about()));
    (drives.to_vec(), Name::ALL.map(|name| (name.word(), name.about())).to_vec())
}

/// The text of a config that comes with the simulator.
#[pyfunction]
pub(crate) fn preset(name: &str) -> Outcome<&'static str> {
    let missing =
        || Failure::new(Errno::NOENT, format!("no config {name:?} comes with the simulator"));
    Preset::find(name).map(|preset| preset.text).ok_or_else(missing)
}

/// A whole config as JSON, with every default.
#[pyfunction]
pub(crate) fn config_text(
    text: &str,
    is_json: Form,
    settings: Vec<(String, String)>,
) -> Outcome<String> {
    let config = config(text, is_json, settings)?;
    Ok(serde_json::to_string(&config).expect("every field has a form in JSON"))
}

/// Runs one config and returns its results as JSON. `progress` is called with the work done and the
/// work in all.
#[pyfunction]
pub(crate) fn run_config(
    py: Python<'_>,
    text: &str,
    is_json: Form,
    settings: Vec<(String, String)>,
    progress: Option<&Bound<'_, PyAny>>,
) -> Outcome<String> {
    let config = config(text, is_json, settings)?;
    watch(py, progress, move |watched| match config.run.mode {
        Mode::Counting => {
            let report = counting::run(&config, &mut |progress| watched.tell(progress))?;
            Ok(json!(report))
        }
        Mode::Timed => {
            let measured = timed::run_watched(&config, &mut |progress| watched.tell(progress))?;
            let mut told = json!(measured.summary());
            told["samples"] = json!(measured.table());
            Ok(told)
        }
    })
}

/// Runs an experiment, with a config in TOML or its own, and returns its results as JSON.
#[pyfunction]
pub(crate) fn run_experiment(
    py: Python<'_>,
    name: &str,
    text: Option<&str>,
    how: How,
    progress: Option<&Bound<'_, PyAny>>,
) -> Outcome<String> {
    let found = Name::ALL.into_iter().find(|known| known.word() == name);
    let known = Name::ALL.map(Name::word).join(", ");
    let name = found.ok_or_else(|| {
        Failure::new(Errno::INVAL, format!("there is no experiment {name:?}: {known}"))
    })?;
    let scope = match how.quick {
        Length::Quick => Scope::Quick,
        Length::Full => Scope::Full,
    };
    let settings = settings_of(how.settings);
    let changes = Changes { seed: how.seed, scope, settings, overlays: Vec::new() };
    let experiment = Experiment::new(name, text.unwrap_or(name.text()), &changes)?;
    let one_each = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    watch(py, progress, move |watched| {
        let sections =
            experiment::run(vec![experiment], how.threads.unwrap_or(one_each), &|progress| {
                watched.tell(progress);
            })?;
        let text = sections.first().map(experiment::json).unwrap_or_default();
        Ok(serde_json::from_str(&text).unwrap_or(Value::Null))
    })
}

fn settings_of(settings: Vec<(String, String)>) -> Vec<Setting> {
    settings.into_iter().map(|(path, value)| Setting { path, value }).collect()
}

/// A config with its changes, checked.
fn config(text: &str, form: Form, settings: Vec<(String, String)>) -> Outcome<Config> {
    let settings = settings_of(settings);
    match form {
        Form::Toml => Ok(Config::parse_with(text, &settings)?),
        Form::Json => {
            let what = |error: serde_json::Error| SimError::Config { what: error.to_string() };
            let mut config: Config = serde_json::from_str(text).map_err(what)?;
            for setting in &settings {
                config = config.set(setting)?;
            }
            config.check()?;
            Ok(config)
        }
    }
}

/// Runs a simulation in a thread, tells `progress`, and ends the simulation if that raises or
/// Python is interrupted.
fn watch(
    py: Python<'_>,
    progress: Option<&Bound<'_, PyAny>>,
    simulate: impl FnOnce(&Watched) -> Result<Value, SimError> + Send + 'static,
) -> Outcome<String> {
    let (say, mut heard) = mpsc::channel();
    let is_stopped = Arc::new(AtomicBool::new(false));
    let watched = Watched { say, is_stopped: Arc::clone(&is_stopped) };
    let thread = std::thread::Builder::new().name("zonal-sim".into());
    let started = thread.spawn(move || {
        let done = match catch_unwind(AssertUnwindSafe(|| simulate(&watched))) {
            Ok(result) => Said::Done(result),
            Err(panic) => Said::Panicked(Failure::panicked(&*panic)),
        };
        // The caller may not wait any more.
        let _ = watched.say.send(done);
    });
    started.map_err(|error| Failure::new(Errno::AGAIN, format!("starting a thread: {error}")))?;
    let outcome = loop {
        let next;
        (next, heard) = py.detach(move || (heard.recv_timeout(LOOK), heard));
        let called = match next {
            Ok(Said::Done(result)) => break result.map_err(Failure::from),
            Ok(Said::Panicked(failure)) => break Err(failure),
            Ok(Said::Progress(Progress { done, total })) => {
                progress.map_or(Ok(()), |progress| progress.call1((done, total)).map(drop))
            }
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => {
                break Err(Failure::new(Errno::IO, "the simulation ended without a result"));
            }
        };
        if let Err(raised) = called.and_then(|()| py.check_signals()) {
            break Err(raised.into());
        }
    };
    is_stopped.store(true, Ordering::Release);
    Ok(outcome?.to_string())
}
