//! `zonal completions` and `zonal man`: texts that the command line makes of itself.

use anyhow::{Context, Result};
use clap::builder::PossibleValue;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use zonal::output;

use crate::args::{Cli, Completions, Man, mount_options};
use crate::manual;

/// Prints a shell's completion script.
pub(crate) fn completions(args: &Completions) {
    tracing::debug!(shell = %args.shell, "generating");
    let script = script(args.shell);
    tracing::info!(shell = %args.shell, bytes = script.len(), "generated a script");
    say!("{script}");
}

fn script(shell: Shell) -> String {
    let (mut command, mut script) = (Cli::command(), Vec::new());
    clap_complete::generate(shell, &mut command, "zonal", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    if shell == Shell::Bash { with_lists(script, &command) } else { script }
}

/// Has the completions of bash complete the word behind the last comma, where an option takes a
/// list. clap completes the first word only.
fn with_lists(script: String, command: &Command) -> String {
    let lists = command
        .get_arguments()
        .filter(|arg| arg.get_value_delimiter() == Some(',') || arg.get_id() == mount_options::ID);
    let with_own = lists.fold(script, |script, list| {
        let values = list.get_possible_values();
        if values.is_empty() {
            return script;
        }
        let words = values.iter().map(PossibleValue::get_name).collect::<Vec<_>>().join(" ");
        let complete = |prefix: &str, last| format!("compgen {prefix}-W \"{words}\" -- \"{last}\"");
        // The text before the last word of the list.
        let before = "-P \"${cur%\"${cur##*,}\"}\" ";
        script.replace(&complete("", "${cur}"), &complete(before, "${cur##*,}"))
    });
    command.get_subcommands().fold(with_own, with_lists)
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

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command as Process, Stdio};

    use super::*;

    /// The words that bash offers for the last word of a command line.
    fn offered(script: &str, line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        let (last, before) = (words[words.len() - 1], words[words.len() - 2]);
        let at = words.len() - 1;
        let asked = format!(
            "{script}\nCOMP_WORDS=({line}); COMP_CWORD={at}; _zonal zonal '{last}' '{before}'\n\
             printf '%s ' \"${{COMPREPLY[@]}}\""
        );
        // In a file: Linux bounds an argument at 128 KiB.
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(asked.as_bytes()).unwrap();
        let mut bash = Process::new("bash");
        let output = bash.arg("--norc").arg(file.path()).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn bash_completes_presets_and_lists() {
        if Process::new("bash").arg("--version").stdout(Stdio::null()).status().is_err() {
            return;
        }
        let script = script(Shell::Bash);
        for (line, wanted) in [
            ("zonal mount -o noat", "noatime "),
            ("zonal mount -o ro,noat", "ro,noatime "),
            ("zonal mount -o ro,nodev,noat", "ro,nodev,noatime "),
            ("zonal bench --op write,app", "write,append "),
            ("zonal sim run zn5", "zn540 "),
            ("zonal sim config zn5", "zn540 "),
            ("zonal sim replay --config zn5", "zn540 "),
        ] {
            assert_eq!(offered(&script, line), wanted, "{line}");
        }
    }
}
