//! Numbers that a database commits one after the other: what it has acknowledged is known.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};

/// A client that commits numbers for ever; each line of `committed` is one that was acknowledged.
pub(crate) struct Numbers {
    client: Child,
    committed: Lines<BufReader<ChildStdout>>,
    last: u32,
}

impl Numbers {
    /// Begins behind `last`. `client` is a command of the shell that takes statements.
    pub(crate) fn write(last: u32, client: &str) -> Self {
        let first = last + 1;
        let statement = "INSERT INTO numbers VALUES (&) RETURNING number;";
        let script = format!("seq {first} 10000000 | sed 's/.*/{statement}/' | {client}");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).stdin(Stdio::null()).stderr(Stdio::null());
        let mut client = shell.stdout(Stdio::piped()).spawn().unwrap();
        let committed = BufReader::new(client.stdout.take().unwrap()).lines();
        Self { client, committed, last }
    }

    /// Waits until so many more are committed, or it ends.
    pub(crate) fn wait_for(&mut self, count: usize) {
        let lines = self.committed.by_ref().map_while(Result::ok).take(count);
        self.last = lines.last().map_or(self.last, |line| line.parse().unwrap());
    }

    /// The last number that was acknowledged, after the server has ended.
    pub(crate) fn end(mut self) -> u32 {
        self.wait_for(usize::MAX);
        self.client.wait().unwrap();
        self.last
    }
}
