//! `zonal completions` and `zonal man`: what the command line says about itself.

use anyhow::{Context, Result};
use clap::CommandFactory;
use zonal::output;

use crate::args::{Cli, Completions, Man};
use crate::manual;

/// Prints a shell's completion script.
pub(crate) fn completions(args: &Completions) {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "zonal", &mut script);
    say!("{}", String::from_utf8_lossy(&script));
}

/// Writes the manual pages.
pub(crate) fn man(args: &Man) -> Result<()> {
    let write = || {
        std::fs::create_dir_all(&args.dir)?;
        let mut pages = manual::pages().into_iter();
        pages.try_for_each(|page| output::write(&args.dir.join(page.name), page.text, &[]))
    };
    write().with_context(|| format!("writing manual pages to {}", args.dir.display()))
}
