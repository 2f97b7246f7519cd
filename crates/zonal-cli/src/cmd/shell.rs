//! `zonal completions` and `zonal man`: what the command line says about itself.

use anyhow::{Context, Result};
use clap::CommandFactory;
use zonal::output;

use crate::args::{Cli, Completions, Man};
use crate::manual;

/// Prints a shell's completion script.
pub(crate) fn completions(args: &Completions) {
    tracing::debug!(shell = %args.shell, "generating");
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "zonal", &mut script);
    tracing::info!(shell = %args.shell, bytes = script.len(), "generated a script");
    say!("{}", String::from_utf8_lossy(&script));
}

/// Writes the manual pages.
pub(crate) fn man(args: &Man) -> Result<()> {
    tracing::info!(dir = %args.dir.display(), "writing manual pages");
    let write = || {
        std::fs::create_dir_all(&args.dir)?;
        manual::pages().into_iter().try_for_each(|page| {
            let (file, bytes) = (args.dir.join(page.name), page.text.len());
            tracing::debug!(file = %file.display(), bytes, "writing a manual page");
            output::write(&file, page.text, &[])
        })
    };
    write().with_context(|| format!("writing manual pages to {}", args.dir.display()))
}
