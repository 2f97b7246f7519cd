//! Numbers that a database commits one after the other: the test knows which it has acknowledged.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};

/// A client that commits numbers for ever; each line of `committed` is an acknowledged one.
pub(crate) struct Numbers {
    client: Child,
    committed: Lines<BufReader<ChildStdout>>,
    last: u32,
}

impl Numbers {
    /// Begins after `last`. `client` is a shell command that takes statements.
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

    /// Waits until `count` more numbers are committed, or the client ends.
    pub(crate) fn wait_for(&mut self, count: usize) {
        let lines = self.committed.by_ref().map_while(Result::ok).take(count);
        self.last = lines.last().map_or(self.last, |line| line.parse().unwrap());
    }

    /// The last acknowledged number, after the server has ended.
    pub(crate) fn end(mut self) -> u32 {
        self.wait_for(usize::MAX);
        self.client.wait().unwrap();
        self.last
    }
}
